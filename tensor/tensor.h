// tensor/tensor.h: the one user-facing array type.
//
// A Tensor is a value: copying it copies a handle on shared storage. It has a shape, strides whose
// innermost dimension is contiguous, a dtype and a device, and an opaque slot for its gradient
// history, which the autograd layer fills. Memory comes from the current Context's allocator,
// labelled `activations` unless said otherwise; work runs on its compute stream.
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

// What a tensor remembers of how it was made; defined by the autograd layer.
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
  // Copies host values (row-major; numel must match) and rounds them to `dtype`.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, DType dtype = kDTypeOf<T>);
  static Tensor from(std::initializer_list<float> values, const Shape& shape,
                     DType dtype = DType::f32);
  // Wraps memory that `owner` keeps alive.
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
  void copy_from(const Tensor& other);  // same shape; converts the dtype
  void fill(double value);

  // --- reading: waits for the compute stream. On a meta device a finite stand-in (1).
  double item() const;  // of a tensor with one element
  template <class T>
  std::vector<T> to_vector() const;  // row-major; T: float, double or int64_t, converted

  // --- gradient history
  const std::shared_ptr<GradientHistory>& history() const { return history_; }
  void set_history(std::shared_ptr<GradientHistory> history) { history_ = std::move(history); }
  bool requires_grad() const { return history_ != nullptr; }

  // Identity of the storage: two tensors that share memory have the same.
  const void* storage_id() const { return storage_.get(); }

 private:
  View view_;
  std::shared_ptr<void> storage_;
  std::shared_ptr<GradientHistory> history_;
};

// "f32[2, 3] on cpu", then the values, edges only when there are many.
std::string to_string(const Tensor& tensor);

}  // namespace zinc
