// nn/buffer.h: tensors that a module computes once and keeps: rotary tables, masks, positions.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/device.h"
#include "core/dtype.h"
#include "nn/model.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// A buffer is neither trained nor saved. It is made once per device and dtype in which it is asked
// for, and again when more positions are asked for than it has. All that was made stays until the
// Buffer ends, because a CUDA graph may read it. So it is made at once for as many positions as the
// largest batch asks for, if that is known: LargestBatchScope.
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

  // The tensors for at least `size` positions. If `size` grows with each call, as in generation,
  // few tensors are made: each is twice as long as the one before. Valid until the next call.
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
  int64_t largest_ = 0;  // of a LargestBatchScope
};

// While it lives, the model runs on the largest batch of a run: what its buffers are asked for
// under the current context is what the run asks for at most. An engine records a model under it.
class LargestBatchScope {
 public:
  explicit LargestBatchScope(bool on) : is_on_(here()), before_(is_on_) { is_on_ = on; }
  ~LargestBatchScope() { is_on_ = before_; }
  LargestBatchScope(const LargestBatchScope&) = delete;
  LargestBatchScope& operator=(const LargestBatchScope&) = delete;

  static bool is_on() { return here(); }

 private:
  struct Flag {
    bool on = false;
  };
  static bool& here() { return Context::current().slot<Flag>().on; }

  bool& is_on_;
  const bool before_;
};

}  // namespace zinc::nn
