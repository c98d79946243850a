// Masks: maps (elementwise.h). The op is a value, not a template argument: it is the same for all
// threads, and memory sets the pace. Traffic: both arguments and a byte for each element.
#include "kernels/compare.h"

#include <type_traits>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/number.h"

namespace zinc::kernels::cuda {
namespace {

// kHasB: a, b -> mask; else a -> mask.
template <class V, bool kHasB>
struct Masks : PlainFunction {
  using Element = V;
  using N = std::conditional_t<std::is_same_v<V, float>, Number<float>, WholeNumber>;
  CompareOp op;
  V b;
  Masks(CompareOp which, double value) : op(which), b(static_cast<V>(value)) {}
  __device__ __forceinline__ void operator()(const V (&in)[kHasB ? 2 : 1], V (&out)[1]) const {
    const V right = kHasB ? in[kHasB ? 1 : 0] : b;
    out[0] = static_cast<V>(holds(op, N(in[0]), N(right)) ? 1 : 0);
  }
};

template <class T>
void run(const Compare& args, StreamRef stream) {
  using V =
      std::conditional_t<std::is_same_v<T, int64_t> || std::is_same_v<T, int32_t>, int64_t, float>;
  const std::array<View, 1> y{args.y};
  if (args.b) {
    launch_map<uint8_t, T, T>(Masks<V, true>(args.op, 0.0), y,
                              std::array<ConstView, 2>{args.a, args.b}, stream);
  } else {
    launch_map<uint8_t, T>(Masks<V, false>(args.op, args.b_value), y,
                           std::array<ConstView, 1>{args.a}, stream);
  }
}

}  // namespace

void compare(const Compare& args, StreamRef stream) {
  switch (args.a.dtype()) {
    case DType::i64:
      return run<int64_t>(args, stream);
    case DType::i32:
      return run<int32_t>(args, stream);
    case DType::u8:
      return run<uint8_t>(args, stream);
    default:
      dispatch_device_float("compare", args.a.dtype(), [&]<class T>() { run<T>(args, stream); });
  }
}

}  // namespace zinc::kernels::cuda
