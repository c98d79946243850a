#include "nn/buffer.h"

#include "autograd/mode.h"
#include "core/context.h"

namespace zinc::nn {

const TensorList& Buffer::get(int64_t size, DType dtype) {
  const Device& device = Context::current().device();
  if (!key_ || key_->device != device || key_->dtype != dtype || key_->size < size) {
    const autograd::NoGrad no_grad;
    key_.reset();
    tensors_ = make_(size, dtype);
    key_ = {.device = device, .dtype = dtype, .size = size};
  }
  return tensors_;
}

}  // namespace zinc::nn
