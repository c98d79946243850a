#include "core/shape.h"

namespace zinc {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += str(shape[i]);
  }
  return text + "]";
}

}  // namespace zinc
