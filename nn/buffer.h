// nn/buffer.h: tensors that a module computes once and keeps: rotary tables, masks, positions.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "nn/model.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// Neither trained nor saved. Follows the module: made on each device and in each dtype in which it
// is asked for, and longer where more positions are asked for than it has. What it has made stays
// until its own end, because a CUDA graph may read it.
//
//   zinc::nn::Buffer places_{[](int64_t size, zinc::DType dtype) {
//     return zinc::TensorList{sinusoids(size, dtype)};  // [size, C]
//   }};
//   ...  zinc::narrow(places_.get(T, x.dtype())[0], 0, 0, T)
class Buffer {
 public:
  // The tensors for `size` positions, on the current context's device.
  using Make = std::function<TensorList(int64_t size, DType dtype)>;

  explicit Buffer(Make make) : make_(std::move(make)) {}

  // For at least `size` positions: it may be more. Of a length that grows with each call, as in
  // generation, a few are made, each twice as long as the one before. Valid until the next call.
  const TensorList& get(int64_t size, DType dtype);

 private:
  struct Made {
    Device device;
    DType dtype;
    int64_t size;
    TensorList tensors;
  };

  Make make_;
  std::vector<Made> made_;
};

}  // namespace zinc::nn
