#include "kernels/permute.h"

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void permute(const Permute& args);
}  // namespace cpu
namespace cuda {
void permute(const Permute& args, StreamRef stream);
}  // namespace cuda

std::array<int, kMaxRank> inverse_order(const std::array<int, kMaxRank>& order, int rank) {
  std::array<int, kMaxRank> inverse{};
  for (int d = 0; d < rank; ++d) {
    const int from = order[static_cast<size_t>(d)];
    require(from >= 0 && from < rank, "permute: order names dimension ", from, " of ", rank);
    inverse[static_cast<size_t>(from)] = d;
  }
  return inverse;
}

Shape permuted_shape(const Shape& shape, const std::array<int, kMaxRank>& order) {
  unsigned seen = 0;
  Shape result;
  for (int d = 0; d < shape.rank(); ++d) {
    const int from = order[static_cast<size_t>(d)];
    require(from >= 0 && from < shape.rank(), "permute: order names dimension ", from, " of ",
            shape.rank());
    require((seen & (1u << from)) == 0, "permute: order names dimension ", from, " twice");
    seen |= 1u << from;
    result.push_back(shape[from]);
  }
  return result;
}

void permute(const Permute& args, StreamRef stream) {
  constexpr auto kOp = "permute";
  require_operand(kOp, "x", args.x, args.x.dtype(), args.x.shape());
  require(args.x.rank() >= 1, kOp, ": x must have at least one dimension");
  require_operand(kOp, "y", args.y, args.x.dtype(), permuted_shape(args.x.shape(), args.order));
  require_apart(kOp, "y", args.y, "x", args.x);
  require_same_device(kOp, {args.x, args.y});
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::permute(args); },
      [&] { cuda::permute(args, stream); });
}

Cost cost(const Permute& args) {
  return {.bytes_read = args.x.bytes(), .bytes_written = args.y.bytes(), .flops = 0};
}

}  // namespace zinc::kernels
