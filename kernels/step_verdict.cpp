#include "kernels/step_verdict.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void decide_step(const DecideStep& args);
}  // namespace cpu
namespace cuda {
void decide_step(const DecideStep& args, StreamRef stream);
}  // namespace cuda

void decide_step(const DecideStep& args, StreamRef stream) {
  constexpr auto kOp = "decide_step";
  const int64_t n = args.sources.numel();
  require(args.num_batches >= 0 && args.num_batches <= args.num_headers && args.longest >= 0 &&
              args.words == args.num_headers + args.longest && args.words > 0,
          kOp, ": ", args.num_batches, " batches, ", args.num_headers, " headers and ",
          args.longest, " sums do not make ", args.words, " words");
  const int64_t ranks = args.gathered.numel() / args.words;
  require(2 * (args.num_headers - args.num_batches) >= args.num_batches, kOp, ": ",
          args.num_headers, " headers have no room for the losses of ", args.num_batches,
          " batches");
  require_dense_operand(kOp, "gathered", args.gathered, DType::f64, Shape{ranks * args.words});
  require_dense_operand(kOp, "sources", args.sources, DType::i64, Shape{n});
  require_dense_operand(kOp, "merges", args.merges, DType::i64, Shape{args.merges.dim(0), 2});
  require_dense_operand(kOp, "parameters", args.parameters, DType::i64,
                        Shape{args.parameters.dim(0), 2});
  require(args.parameters.dim(0) >= 1, kOp, ": parameters must end with a row of ends");
  require_dense_operand(kOp, "leaves", args.leaves, DType::f64, Shape{n});
  require_dense_operand(kOp, "scale", args.scale, DType::u8,
                        Shape{static_cast<int64_t>(sizeof(LossScaleState))});
  require_dense_operand(
      kOp, "out", args.out, DType::u8,
      Shape{static_cast<int64_t>(sizeof(StepVerdict)) + 8 * ranks * args.num_headers});
  require_same_device(kOp, {args.gathered, args.sources, args.merges, args.parameters, args.leaves,
                            args.scale, args.out});
  run_on_device(
      kOp, args, args.gathered.device(), stream, [args] { cpu::decide_step(args); },
      [&] { cuda::decide_step(args, stream); });
}

Cost cost(const DecideStep& args) {
  return {.bytes_read = args.gathered.bytes() + args.sources.bytes() + args.merges.bytes() +
                        args.parameters.bytes() + args.scale.bytes(),
          .bytes_written = args.out.bytes() + args.scale.bytes(),
          .flops = args.sources.numel()};
}

}  // namespace zinc::kernels
