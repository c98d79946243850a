// A compiler's messages for slips in a program must be a few lines each. A macro takes one of the
// slips.
#include <string>

#include <zinc/zinc.h>

zinc::Tensor slip(const zinc::Tensor& x, const std::string& text) {
#if defined(OPERAND)
  return x + text;
#elif defined(COMPARED)
  return x == text;
#elif defined(OPTION)
  return zinc::attention(x, {.num_head = 3, .window = static_cast<int64_t>(text.size())});
#elif defined(LAYER)
  static_cast<void>(text);
  zinc::nn::Linear layer("a", zinc::nn::LinearOptions{.inn = 3});
  return layer.forward(x);
#elif defined(FUNCTION)
  return zinc::sinh(x, text);
#else
  return zinc::concat(std::vector<zinc::Tensor>{x, x}, static_cast<int64_t>(text.size()));
#endif
}
