#include "kernels/finite_norm.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void finite_norm(const FiniteNorm& args);
}  // namespace cpu
namespace cuda {
void finite_norm(const FiniteNorm& args, StreamRef stream);
}  // namespace cuda

void finite_norm(const FiniteNorm& args, StreamRef stream) {
  constexpr auto kOp = "finite_norm";
  require_float(kOp, "x", args.x);
  require(args.x.rank() == 1, kOp, ": x must be [n], not ", args.x.shape());
  require_contiguous(kOp, "x", args.x);
  require_dense_operand(kOp, "chunk_sums", args.chunk_sums, DType::f64,
                        Shape{num_norm_chunks(args.x.numel())});
  require_dense_operand(kOp, "first_nonfinite", args.first_nonfinite, DType::i64, Shape{1});
  require_apart(kOp, "chunk_sums", args.chunk_sums, "x", args.x);
  require_same_device(kOp, {args.x, args.chunk_sums, args.first_nonfinite});
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::finite_norm(args); },
      [&] { cuda::finite_norm(args, stream); });
}

Cost cost(const FiniteNorm& args) {
  return {.bytes_read = args.x.bytes(),
          .bytes_written = args.chunk_sums.bytes() + args.first_nonfinite.bytes(),
          .flops = 2 * args.x.numel()};
}

}  // namespace zinc::kernels
