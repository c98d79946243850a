// tensor/dlpack.h: tensors in and out of other frameworks without a copy, by the DLPack 1.x ABI.
//
// The structs have the layout of dlpack.h (https://dmlc.github.io/dlpack, version 1.1); reinterpret
// a pointer to DLManagedTensorVersioned or DLManagedTensor as the one here. DLPack carries no
// stream: an exported tensor is ready for the host when to_dlpack() returns, and an imported one
// must be ready when from_dlpack() is called.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::dlpack {

struct Version {
  uint32_t major;
  uint32_t minor;
};
inline constexpr Version kVersion{1, 1};

enum DeviceType : int32_t { kDeviceCpu = 1, kDeviceCuda = 2, kDeviceCudaHost = 3 };
enum TypeCode : uint8_t { kCodeInt = 0, kCodeUInt = 1, kCodeFloat = 2, kCodeBfloat = 4 };

inline constexpr uint64_t kFlagReadOnly = 1;
inline constexpr uint64_t kFlagIsCopied = 2;

struct DeviceId {
  int32_t type;
  int32_t index;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct TensorFields {
  void* data;
  DeviceId device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null in the legacy form: compact row-major
  uint64_t byte_offset;
};

struct Managed {  // the legacy form
  TensorFields tensor;
  void* manager_context;
  void (*deleter)(Managed* self);
};

struct ManagedVersioned {
  Version version;
  void* manager_context;
  void (*deleter)(ManagedVersioned* self);
  uint64_t flags;
  TensorFields tensor;
};

// Exports share the tensor's memory, which lives until the consumer calls the deleter (on the
// thread that issues work, like every drop of a Tensor handle). Waits for the compute stream.
// Throws InvalidArgument for a meta tensor and for one with a gradient history (detach() it).
ManagedVersioned* to_dlpack(const Tensor& tensor);
Managed* to_dlpack_legacy(const Tensor& tensor);

// Takes `managed` over: its deleter is called once, when the last handle on the memory goes and the
// compute stream has done the work that was queued until then. Memory that is flagged read-only is
// copied. Throws InvalidArgument, and leaves `managed` to the caller, for another major version,
// another device than the current context's, a dtype without counterpart, or an innermost dimension
// that is not contiguous.
Tensor from_dlpack(ManagedVersioned* managed);
Tensor from_dlpack(Managed* managed);

}  // namespace zinc::dlpack
