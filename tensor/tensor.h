// tensor/tensor.h: the one user-facing array type.
//
// A Tensor is a value: copying it copies a handle on shared storage. It has a shape, strides whose
// innermost dimension is contiguous, a dtype and a device, and an opaque slot for its gradient
// history, which the autograd layer fills. Memory comes from the current Context's allocator,
// labelled `activations` unless said otherwise; work runs on its compute stream. Handles belong to
// the thread that issues work: copying or dropping one from another thread is an error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/allocator.h"
#include "core/context.h"
#include "core/view.h"

namespace zinc {

namespace detail {
struct TensorStorage;
}

// The record of how a tensor was computed; defined by the autograd layer.
class GradientHistory {
 public:
  virtual ~GradientHistory() = default;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage, `defined()` is false

  // --- creation, on the current context's device
  static Tensor empty(const Shape& shape, DType dtype = DType::f32,
                      Label label = Label::activations);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
  // Copies host values (row-major; numel must match) and rounds them once to `dtype` (integers: by
  // C++ conversion). T: double, float, int64_t, int32_t or uint8_t. The values may go at once.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, DType dtype = kDTypeOf<T>);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, DType dtype = kDTypeOf<T>) {
    return from(std::span<const T>(values), shape, dtype);
  }
  static Tensor from(std::initializer_list<float> values, const Shape& shape,
                     DType dtype = DType::f32);
  // Wraps memory that `owner` keeps alive until the last handle goes. Work that is queued on the
  // compute stream may still use the memory then; the owner's destructor has to allow for that.
  static Tensor wrap(const View& view, std::shared_ptr<void> owner);

  bool defined() const { return storage_ != nullptr; }
  const View& view() const;  // throws InvalidArgument when undefined
  const Shape& shape() const { return view().shape(); }
  int rank() const { return view().rank(); }
  int64_t dim(int i) const { return view().dim(i); }
  int64_t numel() const { return view().numel(); }
  DType dtype() const { return view().dtype(); }
  Device device() const { return view().device(); }
  bool is_contiguous() const { return view().is_contiguous(); }

  // --- raw access without gradient history (the differentiable ones are autograd ops)
  Tensor detach() const;  // same storage, no history
  Tensor narrow_view(int dim, int64_t begin, int64_t length) const;
  Tensor reshape_view(const Shape& shape) const;
  Tensor clone() const;                 // contiguous copy
  void copy_from(const Tensor& other);  // same shape; converts the dtype, rounding once
  void fill(double value);              // rounded to the dtype
  // Counts the fills and copies into this storage. A tensor that autograd saved must not change
  // before backward has used it; the count is how autograd notices.
  int64_t version() const;

  // --- reading: waits for the compute stream. On a meta device a finite stand-in (1).
  double item() const;  // the value of a tensor with one element
  template <class T>
  std::vector<T> to_vector() const;  // row-major; T: float, double, int32_t or int64_t, converted

  // --- gradient history
  const std::shared_ptr<GradientHistory>& history() const { return history_; }
  void set_history(std::shared_ptr<GradientHistory> history) { history_ = std::move(history); }
  bool requires_grad() const { return history_ != nullptr; }

  // Identity of the storage: two tensors that share memory have the same.
  const void* storage_id() const { return storage_.get(); }
  // True if this handle is the only one on memory that came from the allocator: then no other
  // tensor sees writes to it.
  bool is_sole_owner() const;

 private:
  View view_;
  std::shared_ptr<detail::TensorStorage> storage_;
  std::shared_ptr<GradientHistory> history_;
};

// "f32[2, 3] on cpu", then the values, edges only when there are many. Values print with at most
// six significant digits. "undefined" for an undefined tensor; no values on a meta device.
std::string to_string(const Tensor& tensor);

// The view of an argument; an absent view where the argument is undefined.
inline View view_or_absent(const Tensor& tensor) {
  return tensor.defined() ? tensor.view() : View();
}

}  // namespace zinc
