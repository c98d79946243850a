#include "files/torch/pickle_globals.h"

#include <algorithm>
#include <array>

namespace zinc::files::torch {
namespace {

constexpr ElementType kFloat64{"float64", 8, DType::f64};
constexpr ElementType kFloat32{"float32", 4, DType::f32};
constexpr ElementType kFloat16{"float16", 2, DType::f16};
constexpr ElementType kBfloat16{"bfloat16", 2, DType::bf16};
constexpr ElementType kInt64{"int64", 8, DType::i64};
constexpr ElementType kInt32{"int32", 4, DType::i32};
constexpr ElementType kInt16{"int16", 2, {}};
constexpr ElementType kInt8{"int8", 1, {}};
constexpr ElementType kUint64{"uint64", 8, {}};
constexpr ElementType kUint32{"uint32", 4, {}};
constexpr ElementType kUint16{"uint16", 2, {}};
constexpr ElementType kUint8{"uint8", 1, DType::u8};
constexpr ElementType kBool{"bool", 1, {}};
constexpr ElementType kComplex64{"complex64", 8, {}};
constexpr ElementType kComplex128{"complex128", 16, {}};
constexpr ElementType kFloat8E4m3{"float8_e4m3fn", 1, {}};
constexpr ElementType kFloat8E5m2{"float8_e5m2", 1, {}};
constexpr ElementType kByte{"byte", 1, {}};

constexpr auto kGlobals = [] {
  using enum GlobalRole;
  return std::to_array<Global>({
      {"torch._utils._rebuild_tensor", tensor},
      {"torch._utils._rebuild_tensor_v2", tensor},
      {"torch._utils._rebuild_tensor_v3", typed_tensor},
      {"torch._utils._rebuild_parameter", parameter},
      {"torch._utils._rebuild_parameter_with_state", parameter},
      {"torch._tensor._rebuild_from_type_v2", tensor_with_state},
      {"torch.FloatStorage", storage, kFloat32},
      {"torch.BFloat16Storage", storage, kBfloat16},
      {"torch.HalfStorage", storage, kFloat16},
      {"torch.DoubleStorage", storage, kFloat64},
      {"torch.LongStorage", storage, kInt64},
      {"torch.IntStorage", storage, kInt32},
      {"torch.ShortStorage", storage, kInt16},
      {"torch.CharStorage", storage, kInt8},
      {"torch.ByteStorage", storage, kUint8},
      {"torch.BoolStorage", storage, kBool},
      {"torch.ComplexFloatStorage", storage, kComplex64},
      {"torch.ComplexDoubleStorage", storage, kComplex128},
      {"torch.UntypedStorage", untyped_storage, kByte},
      {"torch.storage.UntypedStorage", untyped_storage, kByte},
      {"torch.float64", element_type, kFloat64},
      {"torch.float32", element_type, kFloat32},
      {"torch.float16", element_type, kFloat16},
      {"torch.bfloat16", element_type, kBfloat16},
      {"torch.int64", element_type, kInt64},
      {"torch.int32", element_type, kInt32},
      {"torch.int16", element_type, kInt16},
      {"torch.int8", element_type, kInt8},
      {"torch.uint64", element_type, kUint64},
      {"torch.uint32", element_type, kUint32},
      {"torch.uint16", element_type, kUint16},
      {"torch.uint8", element_type, kUint8},
      {"torch.bool", element_type, kBool},
      {"torch.complex64", element_type, kComplex64},
      {"torch.complex128", element_type, kComplex128},
      {"torch.float8_e4m3fn", element_type, kFloat8E4m3},
      {"torch.float8_e5m2", element_type, kFloat8E5m2},
      {"torch.Size", tuple},
      {"torch.Tensor", plain_class},
      {"torch.nn.parameter.Parameter", plain_class},
      {"torch.device", object},
      {"collections.OrderedDict", dict},
      {"collections.defaultdict", dict},
      {"collections.Counter", dict},
      {"builtins.dict", dict},
      {"builtins.list", list},
      {"builtins.tuple", tuple},
      {"builtins.set", set},
      {"builtins.frozenset", set},
      {"builtins.bytes", bytes},
      {"builtins.bytearray", bytes},
      {"builtins.object", plain_class},
      {"builtins.int", plain_class},
      {"builtins.float", plain_class},
      {"builtins.bool", plain_class},
      {"builtins.str", plain_class},
      {"builtins.complex", object},
      {"builtins.slice", object},
      {"builtins.range", object},
      {"_codecs.encode", encoded_text},
      {"copyreg._reconstructor", reconstructor},
      {"copy_reg._reconstructor", reconstructor},
      {"argparse.Namespace", object},
      {"types.SimpleNamespace", object},
      {"pathlib.PosixPath", object},
      {"pathlib._local.PosixPath", object},
      {"numpy.ndarray", plain_class},
      {"numpy.dtype", object},
      {"numpy.core.multiarray.scalar", object},
      {"numpy.core.multiarray._reconstruct", object},
      {"numpy._core.multiarray.scalar", object},
      {"numpy._core.multiarray._reconstruct", object},
      {"deepspeed.runtime.fp16.loss_scaler.LossScaler", object},
      {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", object},
      {"deepspeed.runtime.zero.config.ZeroStageEnum", object},
      {"deepspeed.runtime.zero.offload_config.OffloadDeviceEnum", object},
      {"deepspeed.utils.tensor_fragment.fragment_address", object},
      {"deepspeed.utils.tensor_fragment.tensor_fragment", object},
      {"deepspeed.checkpoint.universal_checkpoint.SubparamShape", object},
  });
}();

}  // namespace

const Global kStorageRecord{"storage", GlobalRole::object};
const Global kLargeInteger{"int", GlobalRole::object};

const Global* find_global(std::string_view name) {
  constexpr std::string_view kBuiltins = "builtins.", kOldBuiltins = "__builtin__.";
  const auto matches = [&](const Global& global) {
    if (global.name == name) return true;
    return name.starts_with(kOldBuiltins) && global.name.starts_with(kBuiltins) &&
           name.substr(kOldBuiltins.size()) == global.name.substr(kBuiltins.size());
  };
  const auto found = std::find_if(kGlobals.begin(), kGlobals.end(), matches);
  return found == kGlobals.end() ? nullptr : &*found;
}

}  // namespace zinc::files::torch
