#include "kernels/tree_sum.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void tree_sum(const TreeSum& args);
void tree_sum_of_range(const HostTreeSum& args, int64_t begin, int64_t end);
}  // namespace cpu
namespace cuda {
void tree_sum(const TreeSum& args, StreamRef stream);
}  // namespace cuda

void tree_sum(const TreeSum& args, StreamRef stream) {
  constexpr auto kOp = "tree_sum";
  require_float(kOp, "in", args.in);
  require(args.in.rank() == 2, kOp, ": in must have two dimensions [count, n], not ",
          args.in.shape());
  const int64_t count = args.in.dim(0);
  const int64_t n = args.in.dim(1);
  require(count >= 1 && count <= kMaxTreeSumArrays, kOp, ": in must hold 1 to ", kMaxTreeSumArrays,
          " arrays, not ", count);
  require_sum_target(kOp, "out", args.out, args.in.dtype(), Shape{n});
  require_same_device(kOp, {args.in, args.out});
  for (int64_t r = 0; r < count; ++r) {
    require_same_or_apart(kOp, "out", args.out, "a row of in",
                          args.in.narrow(0, r, 1).reshape(Shape{n}));
  }
  if (n == 0) return;
  run_on_device(
      kOp, args, args.in.device(), stream, [args] { cpu::tree_sum(args); },
      [&] { cuda::tree_sum(args, stream); });
}

void tree_sum_on_host(const HostTreeSum& args) {
  const auto count = static_cast<int64_t>(args.in.size());
  bug_check(count >= 1 && count <= kMaxTreeSumArrays, "tree_sum_on_host of ", count, " arrays");
  cpu::tree_sum_of_range(args, 0, args.n);
}

Cost cost(const TreeSum& args) {
  const int64_t n = args.in.dim(1);
  return {.bytes_read = args.in.bytes() + (args.accumulate ? args.out.bytes() : 0),
          .bytes_written = args.out.bytes(),
          .flops = (args.in.dim(0) - 1 + (args.accumulate ? 1 : 0)) * n};
}

}  // namespace zinc::kernels
