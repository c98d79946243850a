#include "kernels/flat_index.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void flat_index(const FlatIndex& args);
}
namespace cuda {
void flat_index(const FlatIndex& args, StreamRef stream);
}

void flat_index(const FlatIndex& args, StreamRef stream) {
  constexpr auto kOp = "flat_index";
  require_index(kOp, "index", args.index);
  require(args.flat.rank() == 3, kOp, ": flat must be [outer, n, inner], not ", args.flat.shape());
  require_dense_operand(kOp, "flat", args.flat, DType::i64, args.flat.shape());
  if (args.index.rank() == 1) {
    require(args.index.dim(0) == args.flat.dim(1) && args.flat.dim(2) == 1, kOp,
            ": index of shape ", args.index.shape(), " for flat of shape ", args.flat.shape());
    require_contiguous(kOp, "index", args.index);
  } else {
    require_dense_operand(kOp, "index", args.index, args.index.dtype(), args.flat.shape());
  }
  require_apart(kOp, "flat", args.flat, "index", args.index);
  require_same_device(kOp, {args.index, args.flat});
  if (args.flat.numel() == 0) return;
  run_on_device(
      kOp, args, args.flat.device(), stream, [args] { cpu::flat_index(args); },
      [&] { cuda::flat_index(args, stream); });
}

Cost cost(const FlatIndex& args) {
  return {.bytes_read = args.index.bytes(), .bytes_written = args.flat.bytes()};
}

}  // namespace zinc::kernels
