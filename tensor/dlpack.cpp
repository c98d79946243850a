#include "tensor/dlpack.h"

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace zinc::dlpack {
namespace {

static_assert(sizeof(TensorFields) == 48 && offsetof(TensorFields, byte_offset) == 40);
static_assert(sizeof(Managed) == 64 && offsetof(Managed, deleter) == 56);
static_assert(sizeof(ManagedVersioned) == 80 && offsetof(ManagedVersioned, flags) == 24 &&
              offsetof(ManagedVersioned, tensor) == 32);

DataType to_data_type(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::f16:
      return {kCodeFloat, bits, 1};
    case DType::bf16:
      return {kCodeBfloat, bits, 1};
    case DType::i64:
    case DType::i32:
      return {kCodeInt, bits, 1};
    case DType::u8:
      return {kCodeUInt, bits, 1};
  }
  bug_check(false, "dlpack: dtype without a code");
  return {};
}

DType from_data_type(const DataType& type) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    const DataType known = to_data_type(dtype);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return dtype;
  }
  throw InvalidArgument(str("from_dlpack: no dtype of zinc has code ", int{type.code}, ", ",
                            int{type.bits}, " bits, ", int{type.lanes}, " lanes"));
}

// Exported: keeps the tensor and the arrays that the struct points to.
template <class Struct>
struct Holder {
  Struct managed{};
  Tensor tensor;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> strides{};
};

template <class Struct>
Struct* export_tensor(const Tensor& tensor) {
  require(!tensor.device().meta, "to_dlpack: a meta tensor has no memory");
  require(!tensor.requires_grad(), "to_dlpack: the tensor has a gradient history; detach() it");
  Context::current().compute()->synchronize();
  auto holder = std::make_unique<Holder<Struct>>();
  holder->tensor = tensor;
  const View& view = tensor.view();
  for (int d = 0; d < view.rank(); ++d) {
    holder->shape[static_cast<size_t>(d)] = view.dim(d);
    holder->strides[static_cast<size_t>(d)] = view.stride(d);
  }
  Struct& managed = holder->managed;
  managed.tensor = {
      .data = view.data(),
      .device = {view.device().is_cpu() ? kDeviceCpu : kDeviceCuda, int32_t{view.device().index}},
      .ndim = view.rank(),
      .dtype = to_data_type(view.dtype()),
      .shape = holder->shape.data(),
      .strides = holder->strides.data(),
      .byte_offset = 0};
  managed.manager_context = holder.get();
  managed.deleter = [](Struct* self) {
    std::unique_ptr<Holder<Struct>>(static_cast<Holder<Struct>*>(self->manager_context)).reset();
  };
  return &holder.release()->managed;
}

View to_view(const TensorFields& fields) {
  const Device device = Context::current().device();
  require(!device.meta, "from_dlpack: the current context is a meta context");
  const int32_t type = device.is_cpu() ? kDeviceCpu : kDeviceCuda;
  require(fields.device.type == type && (device.is_cpu() || fields.device.index == device.index),
          "from_dlpack: the tensor lies on DLPack device (", fields.device.type, ", ",
          fields.device.index, "), the current context computes on ", device);
  require(fields.ndim >= 0 && fields.ndim <= kMaxRank, "from_dlpack: at most ", kMaxRank,
          " dimensions, not ", fields.ndim);
  Shape shape;
  for (int32_t d = 0; d < fields.ndim; ++d) shape.push_back(fields.shape[d]);
  Strides strides = contiguous_strides(shape);
  if (fields.strides != nullptr) {
    for (int32_t d = 0; d < fields.ndim; ++d) {
      strides[static_cast<size_t>(d)] = fields.strides[d];
      require(fields.strides[d] >= 0 || fields.shape[d] <= 1, "from_dlpack: dimension ", d,
              " has the negative stride ", fields.strides[d]);
    }
    require(fields.ndim == 0 || fields.shape[fields.ndim - 1] <= 1 ||
                fields.strides[fields.ndim - 1] == 1,
            "from_dlpack: the innermost dimension must be contiguous; make the tensor contiguous "
            "where it comes from");
  }
  require(fields.data != nullptr || shape.numel() == 0, "from_dlpack: the tensor of shape ", shape,
          " has no memory");
  return View(static_cast<std::byte*>(fields.data) + fields.byte_offset,
              from_data_type(fields.dtype), shape, strides, device, Tier::device);
}

// Lives as long as a context: tells owners of foreign memory whether its streams still exist.
struct Liveness {
  std::shared_ptr<char> token = std::make_shared<char>();
};

template <class Struct>
std::shared_ptr<void> take_over(Struct* managed) {
  Context& context = Context::current();
  return std::shared_ptr<void>(
      managed, [stream = context.compute(),
                alive = std::weak_ptr<char>(context.slot<Liveness>().token)](void* pointer) {
        if (!alive.expired()) {
          try {
            stream->synchronize();
          } catch (...) {  // the stream keeps the exception for the next caller that waits
          }
        }
        auto* self = static_cast<Struct*>(pointer);
        if (self->deleter != nullptr) self->deleter(self);
      });
}

template <class Struct>
Tensor import_tensor(Struct* managed, bool read_only) {
  const View view = to_view(managed->tensor);
  const std::shared_ptr<void> owner = take_over(managed);
  // Without elements there may be no memory either, and nothing to share.
  if (view.numel() == 0) return Tensor::empty(view.shape(), view.dtype());
  Tensor tensor = Tensor::wrap(view, owner);
  return read_only ? tensor.clone() : tensor;
}

}  // namespace

ManagedVersioned* to_dlpack(const Tensor& tensor) {
  auto* managed = export_tensor<ManagedVersioned>(tensor);
  managed->version = kVersion;
  managed->flags = 0;
  return managed;
}

Managed* to_dlpack_legacy(const Tensor& tensor) { return export_tensor<Managed>(tensor); }

Tensor from_dlpack(ManagedVersioned* managed) {
  require(managed != nullptr, "from_dlpack: null pointer");
  require(managed->version.major == kVersion.major, "from_dlpack: DLPack version ",
          managed->version.major, ".", managed->version.minor, "; this build reads 1.x");
  return import_tensor(managed, (managed->flags & kFlagReadOnly) != 0);
}

Tensor from_dlpack(Managed* managed) {
  require(managed != nullptr, "from_dlpack: null pointer");
  return import_tensor(managed, false);
}

}  // namespace zinc::dlpack
