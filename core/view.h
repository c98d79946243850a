// core/view.h: memory as a kernel sees it.
//
// A view is a pointer with dtype, device, tier, shape and strides; it owns nothing and is copied
// freely. Strides are in elements; the innermost dimension is contiguous (stride 1), the outer
// ones are free, so that q, k and v can be views into one QKV buffer. A kernel's header says
// which strides it takes. On a meta device `data` is an address that must not be read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/device.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace zinc {

using Strides = std::array<int64_t, kMaxRank>;

// Row-major strides of a contiguous tensor.
Strides contiguous_strides(const Shape& shape);

template <class Pointer>
class BasicView {
 public:
  BasicView() = default;
  BasicView(Pointer data, DType dtype, const Shape& shape, Device device = kCpu,
            Tier tier = Tier::device)
      : BasicView(data, dtype, shape, contiguous_strides(shape), device, tier) {}
  BasicView(Pointer data, DType dtype, const Shape& shape, const Strides& strides, Device device,
            Tier tier)
      : data_(data), dtype_(dtype), tier_(tier), device_(device), shape_(shape), strides_(strides) {
    require(shape.rank() == 0 || shape.dim(-1) <= 1 ||
                strides[static_cast<size_t>(shape.rank() - 1)] == 1,
            "view: the innermost dimension must be contiguous");
  }
  // A View converts to a ConstView.
  template <class Other>
  requires(!std::is_same_v<Other, Pointer> && std::is_convertible_v<Other, Pointer>)
      BasicView(const BasicView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data_(other.data()),
        dtype_(other.dtype()),
        tier_(other.tier()),
        device_(other.device()),
        shape_(other.shape()),
        strides_(other.strides()) {}

  // False for a default-constructed view: "this optional argument is absent".
  explicit operator bool() const { return data_ != nullptr; }

  Pointer data() const { return data_; }
  // Typed access; throws InternalError when T is not the dtype.
  template <class T>
  auto data_as() const {
    bug_check(kDTypeOf<T> == dtype_, "a view of ", dtype_, " was read as ", kDTypeOf<T>);
    using Target = std::conditional_t<std::is_same_v<Pointer, const void*>, const T*, T*>;
    return static_cast<Target>(data_);
  }

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  Tier tier() const { return tier_; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_.dim(i); }
  int64_t numel() const { return shape_.numel(); }
  int64_t rows() const { return shape_.rows(); }
  int64_t cols() const { return shape_.cols(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  int64_t stride(int i) const {
    return strides_[static_cast<size_t>(i < 0 ? i + shape_.rank() : i)];
  }
  bool is_contiguous() const;

  // Elements [begin, begin + length) of dimension `dim` (negative counts from the end).
  BasicView narrow(int dim, int64_t begin, int64_t length) const;
  // The same elements under another shape; the view must be contiguous and numel equal.
  BasicView reshape(const Shape& shape) const;
  // The same bytes as another dtype of the same size (contiguous only; last dimension rescaled
  // where sizes differ).
  BasicView as_dtype(DType dtype) const;

 private:
  Pointer data_ = nullptr;
  DType dtype_ = DType::f32;
  Tier tier_ = Tier::device;
  Device device_;
  Shape shape_;
  Strides strides_{};
};

using View = BasicView<void*>;
using ConstView = BasicView<const void*>;

extern template class BasicView<void*>;
extern template class BasicView<const void*>;

// "f32[2, 3] on cpu"
std::string to_string(const ConstView& view);
inline std::string to_string(const View& view) { return to_string(ConstView(view)); }

// The argument checks that every kernel's dispatcher makes first, with messages that start with
// `op`.
void require_same_device(std::string_view op, std::initializer_list<ConstView> views);
void require_dtype(std::string_view op, std::string_view name, const ConstView& view, DType dtype);
void require_shape(std::string_view op, std::string_view name, const ConstView& view,
                   const Shape& shape);
void require_contiguous(std::string_view op, std::string_view name, const ConstView& view);
// Kernels compute on Tier::device only.
void require_computable(std::string_view op, std::string_view name, const ConstView& view);

}  // namespace zinc
