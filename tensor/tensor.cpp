#include "tensor/tensor.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "tensor/tensor_storage.h"

namespace zinc {
namespace {

// Calls body.operator()<T>() with the C++ type of any dtype.
template <class Body>
void dispatch_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::i64:
      return body.template operator()<int64_t>();
    case DType::i32:
      return body.template operator()<int32_t>();
    case DType::u8:
      return body.template operator()<uint8_t>();
    default:
      return dispatch_float(dtype, std::forward<Body>(body));
  }
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, bf16> || std::is_same_v<To, f16>) {
    if constexpr (std::is_same_v<From, double> || std::is_same_v<From, int64_t> ||
                  std::is_same_v<From, int32_t>) {
      return To(round_to_odd(static_cast<double>(value)));
    } else {
      return To(static_cast<float>(value));
    }
  } else if constexpr (std::is_same_v<From, bf16> || std::is_same_v<From, f16>) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
void convert_all(const From* from, int64_t n, void* to) {
  To* out = static_cast<To*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(from[i]);
}

// Calls body(element offset) for every element in row-major order.
template <class Body>
void for_each_offset(const ConstView& view, int dim, int64_t offset, Body& body) {
  if (dim == view.rank()) {
    body(offset);
    return;
  }
  const int64_t stride = view.stride(dim);
  for (int64_t i = 0; i < view.dim(dim); ++i) {
    for_each_offset(view, dim + 1, offset + i * stride, body);
  }
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Label label) {
  Context& context = Context::current();
  auto storage = std::make_shared<detail::TensorStorage>();
  storage->block = context.allocate(shape.numel() * size_of(dtype), label);
  Tensor tensor;
  tensor.view_ = View(storage->block.data(), dtype, shape, context.device());
  tensor.storage_ = std::move(storage);
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) { return full(shape, 0.0, dtype); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor tensor = empty(shape, dtype);
  kernels::fill({.y = tensor.view_, .value = value}, Context::current().compute());
  return tensor;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, DType dtype) {
  const auto count = static_cast<int64_t>(values.size());
  require(count == shape.numel(), "tensor from: ", count, " values for shape ", shape);
  Tensor tensor = empty(shape, dtype);
  const StreamRef stream = Context::current().compute();
  if (tensor.device().meta || count == 0) return tensor;
  dispatch_any(dtype, [&]<class To>() {
    void* out = tensor.view_.data();
    if (tensor.device().is_cuda()) {
      std::vector<To> converted(values.size());
      convert_all<T, To>(values.data(), count, converted.data());
      upload(converted.data(), tensor.view_, stream);
    } else if (stream->kind() == StreamKind::immediate) {
      convert_all<T, To>(values.data(), count, out);
    } else {
      stream->enqueue("tensor_from", [held = std::vector<T>(values.begin(), values.end()), out] {
        convert_all<T, To>(held.data(), static_cast<int64_t>(held.size()), out);
      });
    }
  });
  return tensor;
}

template Tensor Tensor::from(std::span<const double>, const Shape&, DType);
template Tensor Tensor::from(std::span<const float>, const Shape&, DType);
template Tensor Tensor::from(std::span<const int64_t>, const Shape&, DType);
template Tensor Tensor::from(std::span<const int32_t>, const Shape&, DType);
template Tensor Tensor::from(std::span<const uint8_t>, const Shape&, DType);

Tensor Tensor::from(std::initializer_list<float> values, const Shape& shape, DType dtype) {
  return from(std::span<const float>(values.begin(), values.size()), shape, dtype);
}

Tensor Tensor::wrap(const View& view, std::shared_ptr<void> owner) {
  require(static_cast<bool>(view), "tensor wrap: the view has no memory");
  Tensor tensor;
  tensor.view_ = view;
  tensor.storage_ = std::make_shared<detail::TensorStorage>();
  tensor.storage_->owner = std::move(owner);
  return tensor;
}

const View& Tensor::view() const {
  require(defined(), "tensor: an undefined tensor was used; it was never assigned, or moved from");
  return view_;
}

Tensor Tensor::detach() const {
  Tensor result = *this;
  result.history_.reset();
  return result;
}

Tensor Tensor::narrow_view(int dim, int64_t begin, int64_t length) const {
  Tensor result = detach();
  result.view_ = view().narrow(dim, begin, length);
  return result;
}

Tensor Tensor::reshape_view(const Shape& shape) const {
  Tensor result = detach();
  result.view_ = view().reshape(shape);
  return result;
}

Tensor Tensor::clone() const {
  Tensor result = empty(shape(), dtype());
  kernels::copy({.x = view(), .y = result.view_}, Context::current().compute());
  return result;
}

void Tensor::copy_from(const Tensor& other) {
  require(other.shape() == shape(), "copy_from: shapes differ: ", shape(), " vs ", other.shape());
  kernels::copy({.x = other.view(), .y = view()}, Context::current().compute());
  ++storage_->version;
}

void Tensor::fill(double value) {
  kernels::fill({.y = view(), .value = value}, Context::current().compute());
  ++storage_->version;
}

int64_t Tensor::version() const { return storage_ == nullptr ? 0 : storage_->version; }

bool Tensor::is_sole_owner() const {
  return storage_.use_count() == 1 && storage_->owner == nullptr && storage_->block;
}

double Tensor::item() const {
  require(numel() == 1, "item: the tensor has ", numel(), " elements, not 1");
  return to_vector<double>().front();
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const ConstView v = view();
  const auto count = static_cast<size_t>(v.numel());
  if (v.device().meta) {
    if (Context* context = Context::current_or_null()) context->compute()->synchronize();
    return std::vector<T>(count, T{1});
  }
  require(v.tier() != Tier::nvme, "to_vector: the tensor lies in tier nvme");
  Context::current().compute()->synchronize();
  std::vector<T> values;
  values.reserve(count);
  if (count == 0) return values;
  dispatch_any(v.dtype(), [&]<class From>() {
    const From* data = v.data_as<From>();
    std::vector<From> span;  // GPU memory: everything from the first element to the last
    if (v.device().is_cuda() && v.tier() == Tier::device) {
      int64_t last = 0;
      for (int d = 0; d < v.rank(); ++d) last += (v.dim(d) - 1) * v.stride(d);
      span.resize(static_cast<size_t>(last + 1));
      download(ConstView(data, v.dtype(), Shape{last + 1}, v.device()), span.data(),
               Context::current().compute());
      data = span.data();
    }
    if (v.is_contiguous()) {
      values.resize(count);
      for (size_t i = 0; i < count; ++i) values[i] = convert<T>(data[i]);
      return;
    }
    auto append = [&](int64_t offset) { values.push_back(convert<T>(data[offset])); };
    for_each_offset(v, 0, 0, append);
  });
  return values;
}

template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;

}  // namespace zinc
