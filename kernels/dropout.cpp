#include "kernels/dropout.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void dropout_residual(const DropoutResidual& args);
}  // namespace cpu
namespace cuda {
void dropout_residual(const DropoutResidual& args, StreamRef stream);
}  // namespace cuda

namespace {

// Dropout alone is the case without a residual.
void check(const char* op, const DropoutResidual& args) {
  require_float(op, "x", args.x);
  require_dense_operand(op, "x", args.x, args.x.dtype(), args.x.shape());
  require_dense_operand(op, "y", args.y, args.x.dtype(), args.x.shape());
  if (args.residual) {
    require_dense_operand(op, "residual", args.residual, args.x.dtype(), args.x.shape());
    require_same_or_apart(op, "y", args.y, "residual", args.residual);
  }
  require(args.p >= 0.0 && args.p <= 1.0, op, ": p must be in [0, 1], not ", args.p);
  require(args.first_element >= 0, op,
          ": first_element must not be negative: ", args.first_element);
  require_same_or_apart(op, "y", args.y, "x", args.x);
  require_same_device(op, {args.x, args.residual, args.y});
  require_counter(op, args.counter, args.x.device());
}

}  // namespace

void dropout(const Dropout& args, StreamRef stream) {
  constexpr auto kOp = "dropout";
  const DropoutResidual all{.x = args.x,
                            .residual = {},
                            .y = args.y,
                            .p = args.p,
                            .key = args.key,
                            .first_element = args.first_element,
                            .counter = args.counter};
  check(kOp, all);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [all] { cpu::dropout_residual(all); },
      [&] { cuda::dropout_residual(all, stream); });
}

void dropout_residual(const DropoutResidual& args, StreamRef stream) {
  constexpr auto kOp = "dropout_residual";
  require(static_cast<bool>(args.residual), kOp, ": residual is missing");
  check(kOp, args);
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::dropout_residual(args); },
      [&] { cuda::dropout_residual(args, stream); });
}

// The integer work of the random numbers does not count.
Cost cost(const Dropout& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = args.x.numel()};
}

Cost cost(const DropoutResidual& args) {
  return {.bytes_read = args.x.bytes() + args.residual.bytes(),
          .bytes_written = args.y.bytes(),
          .flops = 2 * args.x.numel()};
}

}  // namespace zinc::kernels
