#include "nn/buffer.h"

#include <algorithm>

#include "autograd/mode.h"
#include "core/context.h"

namespace zinc::nn {

const TensorList& Buffer::get(int64_t size, DType dtype) {
  if (LargestBatchScope::is_on()) largest_ = std::max(largest_, size);
  const Device& device = Context::current().device();
  int64_t longest = 0;
  for (const Made& made : made_) {
    if (made.device != device || made.dtype != dtype) continue;
    if (made.size >= size) return made.tensors;
    longest = std::max(longest, made.size);
  }
  const autograd::NoGrad no_grad;
  const int64_t length = std::max({size, 2 * longest, largest_});
  made_.push_back(
      {.device = device, .dtype = dtype, .size = length, .tensors = make_(length, dtype)});
  return made_.back().tensors;
}

}  // namespace zinc::nn
