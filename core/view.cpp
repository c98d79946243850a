#include "core/view.h"

namespace zinc {

Strides contiguous_strides(const Shape& shape) {
  Strides strides{};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = step;
    step *= shape[i];
  }
  return strides;
}

template <class Pointer>
bool BasicView<Pointer>::is_contiguous() const {
  if (numel() == 0) return true;
  int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && stride(i) != step) return false;
    step *= shape_[i];
  }
  return true;
}

template <class Pointer>
BasicView<Pointer> BasicView<Pointer>::narrow(int dim, int64_t begin, int64_t length) const {
  const int d = dim < 0 ? dim + rank() : dim;
  require(d >= 0 && d < rank(), "narrow: dimension ", dim, " of ", shape_);
  require(begin >= 0 && length >= 0 && begin <= shape_[d] && length <= shape_[d] - begin,
          "narrow: ", length, " elements from ", begin, " on are outside dimension ", d, " of ",
          shape_);
  BasicView result = *this;
  result.shape_.set(d, length);
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>, const std::byte, std::byte>;
  if (data_ != nullptr) {
    result.data_ = static_cast<Byte*>(data_) + begin * stride(d) * size_of(dtype_);
  }
  return result;
}

template <class Pointer>
BasicView<Pointer> BasicView<Pointer>::reshape(const Shape& shape) const {
  require(shape.numel() == numel(), "reshape: ", shape_, " has ", numel(), " elements, ", shape,
          " has ", shape.numel());
  require(is_contiguous(), "reshape: the view of shape ", shape_,
          " is not contiguous; copy it with contiguous() first");
  return BasicView(data_, dtype_, shape, device_, tier_);
}

template <class Pointer>
BasicView<Pointer> BasicView<Pointer>::as_dtype(DType dtype) const {
  require(is_contiguous(), "as_dtype: the view of shape ", shape_, " is not contiguous");
  require(bytes() % size_of(dtype) == 0, "as_dtype: ", bytes(), " bytes are no whole number of ",
          dtype);
  if (size_of(dtype) == size_of(dtype_)) {
    return BasicView(data_, dtype, shape_, device_, tier_);
  }
  return BasicView(data_, dtype, Shape{bytes() / size_of(dtype)}, device_, tier_);
}

template class BasicView<void*>;
template class BasicView<const void*>;

std::string to_string(const ConstView& view) {
  return str(view.dtype(), view.shape(), " on ", view.device());
}

void require_same_device(std::string_view op, std::initializer_list<ConstView> views) {
  const ConstView* first = nullptr;
  for (const ConstView& view : views) {
    if (!view) continue;
    if (first == nullptr) first = &view;
    require(view.device() == first->device(), op,
            ": all arguments must be on one device: ", first->device(), " vs ", view.device());
  }
}

void require_dtype(std::string_view op, std::string_view name, const ConstView& view, DType dtype) {
  require(view.dtype() == dtype, op, ": ", name, " must be ", dtype, ", not ", view.dtype());
}

void require_shape(std::string_view op, std::string_view name, const ConstView& view,
                   const Shape& shape) {
  require(view.shape() == shape, op, ": ", name, " must have shape ", shape, ", not ",
          view.shape());
}

void require_contiguous(std::string_view op, std::string_view name, const ConstView& view) {
  require(view.is_contiguous(), op, ": ", name, " of shape ", view.shape(),
          " must be contiguous; copy it with contiguous() first");
}

void require_computable(std::string_view op, std::string_view name, const ConstView& view) {
  require(view.tier() == Tier::device, op, ": ", name, " lies in tier ", view.tier(),
          "; kernels compute on device memory only");
}

}  // namespace zinc
