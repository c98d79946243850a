#include "kernels/adamw.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "kernels/checks.h"
#include "kernels/cpu/adamw_scalars.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void adamw(const AdamW& args);
}  // namespace cpu
namespace cuda {
void adamw(const AdamW& args, StreamRef stream);
}  // namespace cuda

void adamw(const AdamW& args, StreamRef stream) {
  constexpr auto kOp = "adamw";
  require_update_operands(kOp, args.weights, args.gradient, args.model_weights, args.factor,
                          args.skip);
  const DType dtype = args.weights.dtype();
  const bool is_narrow = dtype == DType::f32 && args.m && args.m.dtype() == DType::bf16;
  for (const View& moment : {args.m, args.v}) {
    require_dense_operand(kOp, "m or v", moment, is_narrow ? DType::bf16 : dtype,
                          args.weights.shape());
    require_apart(kOp, "m or v", moment, "weights", args.weights);
    require_apart(kOp, "m or v", moment, "gradient", args.gradient);
    require_apart(kOp, "m or v", moment, "model_weights", args.model_weights);
  }
  require_apart(kOp, "m", args.m, "v", args.v);
  require(args.step >= 1, kOp, ": step counts from 1, not ", args.step);
  require(args.beta1 >= 0.0 && args.beta1 < 1.0, kOp, ": beta1 must be in [0, 1), not ",
          args.beta1);
  require(args.beta2 >= 0.0 && args.beta2 < 1.0, kOp, ": beta2 must be in [0, 1), not ",
          args.beta2);
  require(args.eps >= 0.0, kOp, ": eps must not be negative: ", args.eps);
  require_same_device(kOp, {args.weights, args.m, args.v});
  if (args.scalars) {
    require(dtype == DType::f32, kOp, ": scalars on the device are for f32 weights, not ", dtype);
    require_operand(kOp, "scalars", args.scalars, DType::f32, Shape{kNumAdamWScalars});
    require_same_device(kOp, {args.weights, args.scalars});
  }
  if (args.weights.numel() == 0) return;
  run_on_device(
      kOp, args, args.weights.device(), stream, [args] { cpu::adamw(args); },
      [&] { cuda::adamw(args, stream); });
}

void adamw_scalars(const AdamW& args, std::span<float> scalars) {
  require(scalars.size() == static_cast<size_t>(kNumAdamWScalars), "adamw_scalars: room for ",
          scalars.size(), " of ", kNumAdamWScalars);
  AdamW without_views = args;
  without_views.factor = {};
  without_views.scalars = {};
  const auto k = cpu::adamw_scalars<float>(without_views);
  const auto half = [&](int shift) {
    return std::bit_cast<float>(static_cast<uint32_t>(args.random.counter_high >> shift));
  };
  const float values[] = {k.b1,  k.c1,    k.b2, k.c2,    k.a,     k.s,
                          k.eps, k.decay, k.l2, half(0), half(32)};
  static_assert(std::size(values) == kNumAdamWScalars);
  std::copy(std::begin(values), std::end(values), scalars.begin());
}

// Operations per element as the header lists them, an fma as two.
Cost cost(const AdamW& args) {
  const int64_t states = args.weights.bytes() + args.m.bytes() + args.v.bytes();
  return {.bytes_read = states + args.gradient.bytes(),
          .bytes_written = states + optional_bytes(args.model_weights),
          .flops = (args.weight_decay != 0.0 ? 16 : 14) * args.weights.numel()};
}

}  // namespace zinc::kernels
