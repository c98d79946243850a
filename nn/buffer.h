// nn/buffer.h: tensors that a module computes once and keeps: rotary tables, masks, positions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/device.h"
#include "core/dtype.h"
#include "nn/model.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// Neither trained nor saved. Follows the module: made anew on the device and in the dtype in which
// it is asked for, and longer where more positions are asked for than it has.
//
//   zinc::nn::Buffer mask_{[](int64_t T, zinc::DType) { return zinc::TensorList{tril_mask(T)}; }};
//   ...  mask_.get(x.dim(1), x.dtype())[0]
class Buffer {
 public:
  // The tensors for `size` positions, on the current context's device.
  using Make = std::function<TensorList(int64_t size, DType dtype)>;

  explicit Buffer(Make make) : make_(std::move(make)) {}

  // For at least `size` positions. Valid until the next call.
  const TensorList& get(int64_t size, DType dtype);

 private:
  struct Key {
    Device device;
    DType dtype;
    int64_t size;
  };

  Make make_;
  std::optional<Key> key_;
  TensorList tensors_;
};

}  // namespace zinc::nn
