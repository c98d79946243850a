#include "kernels/attention_merge.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void attention_merge(const AttentionMerge& args);
}  // namespace cpu
namespace cuda {
void attention_merge(const AttentionMerge& args, StreamRef stream);
}  // namespace cuda

void attention_merge(const AttentionMerge& args, StreamRef stream) {
  constexpr auto kOp = "attention_merge";
  require_float(kOp, "part", args.part);
  require(args.part.rank() == 4, kOp, ": part must be [batch, queries, heads, head size], not ",
          args.part.shape());
  const DType wide = args.part.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Shape rows{args.part.dim(0), args.part.dim(2), args.part.dim(1)};
  require_operand(kOp, "out", args.out, wide, args.part.shape());
  require_dense_operand(kOp, "part_lse", args.part_lse, wide, rows);
  require_dense_operand(kOp, "lse", args.lse, wide, rows);
  require_same_device(kOp, {args.part, args.part_lse, args.out, args.lse});
  for (const auto& [name, view] : {std::pair{"out", args.out}, std::pair{"lse", args.lse}}) {
    require_apart(kOp, name, view, "part", args.part);
    require_apart(kOp, name, view, "part_lse", args.part_lse);
  }
  if (args.part.numel() == 0) return;
  run_on_device(
      kOp, args, args.part.device(), stream, [args] { cpu::attention_merge(args); },
      [&] { cuda::attention_merge(args, stream); });
}

Cost cost(const AttentionMerge& args) {
  const int64_t changed = args.out.bytes() + args.lse.bytes();
  return {.bytes_read = args.part.bytes() + args.part_lse.bytes() + changed,
          .bytes_written = changed,
          .flops = 3 * args.part.numel()};
}

}  // namespace zinc::kernels
