#include "kernels/attention_sinks.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void attention_sinks(const AttentionSinks& args);
void attention_sinks_backward(const AttentionSinksBackward& args);
}  // namespace cpu
namespace cuda {
void attention_sinks(const AttentionSinks& args, StreamRef stream);
void attention_sinks_backward(const AttentionSinksBackward& args, StreamRef stream);
}  // namespace cuda

namespace {

void check(const char* op, const ConstView& sinks, const ConstView& out, const ConstView& lse) {
  require_float(op, "out", out);
  require(out.rank() == 4, op, ": out must be [batch, queries, heads, head size], not ",
          out.shape());
  const DType wide = out.dtype() == DType::f64 ? DType::f64 : DType::f32;
  require_dense_operand(op, "sinks", sinks, wide, Shape{out.dim(2)});
  require_dense_operand(op, "lse", lse, wide, Shape{out.dim(0), out.dim(2), out.dim(1)});
}

}  // namespace

void attention_sinks(const AttentionSinks& args, StreamRef stream) {
  constexpr auto kOp = "attention_sinks";
  check(kOp, args.sinks, args.out, args.lse);
  require_same_device(kOp, {args.sinks, args.out, args.lse});
  for (const auto& [name, view] : {std::pair{"out", args.out}, std::pair{"lse", args.lse}}) {
    require_apart(kOp, name, view, "sinks", args.sinks);
  }
  if (args.out.numel() == 0) return;
  run_on_device(
      kOp, args, args.out.device(), stream, [args] { cpu::attention_sinks(args); },
      [&] { cuda::attention_sinks(args, stream); });
}

Cost cost(const AttentionSinks& args) {
  const int64_t changed = args.out.bytes() + args.lse.bytes();
  return {.bytes_read = args.sinks.bytes() + changed,
          .bytes_written = changed,
          .flops = args.out.numel()};
}

void attention_sinks_backward(const AttentionSinksBackward& args, StreamRef stream) {
  constexpr auto kOp = "attention_sinks_backward";
  check(kOp, args.sinks, args.out, args.lse);
  require_operand(kOp, "dout", args.dout, args.out.dtype(), args.out.shape());
  require_dense_operand(kOp, "dsinks", args.dsinks, args.sinks.dtype(), args.sinks.shape());
  require_same_device(kOp, {args.sinks, args.out, args.lse, args.dout, args.dsinks});
  for (const auto& [name, view] : {std::pair{"sinks", args.sinks}, std::pair{"out", args.out},
                                   std::pair{"lse", args.lse}, std::pair{"dout", args.dout}}) {
    require_apart(kOp, "dsinks", args.dsinks, name, view);
  }
  if (args.dsinks.numel() == 0) return;
  run_on_device(
      kOp, args, args.out.device(), stream, [args] { cpu::attention_sinks_backward(args); },
      [&] { cuda::attention_sinks_backward(args, stream); });
}

Cost cost(const AttentionSinksBackward& args) {
  return {
      .bytes_read = args.sinks.bytes() + args.out.bytes() + args.dout.bytes() + args.lse.bytes(),
      .bytes_written = args.dsinks.bytes(),
      .flops = 2 * args.out.numel()};
}

}  // namespace zinc::kernels
