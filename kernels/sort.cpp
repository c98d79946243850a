#include "kernels/sort.h"

#include <algorithm>
#include <bit>

#include "kernels/checks.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void sort(const Sort& args);
}
namespace cuda {
void sort(const Sort& args, StreamRef stream);
}

namespace {
// Rows that a GPU sorts at once, a block each.
constexpr int64_t kSortRows = 264;
}  // namespace

// A GPU needs a key of 8 bytes for every element of the rows that are sorted at once, their length
// rounded up to a power of two; the CPU sorts the indices in place.
int64_t sort_workspace_bytes(int64_t rows, int64_t cols, DeviceKind device) {
  if (device == DeviceKind::cpu || rows == 0 || cols == 0) return 0;
  const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(cols)));
  return std::min(rows, kSortRows) * padded * 8;
}

void sort(const Sort& args, StreamRef stream) {
  constexpr auto kOp = "sort";
  require_float(kOp, "x", args.x);
  require(args.x.rank() == 2 && args.x.dim(1) < int64_t{1} << 31, kOp,
          ": x must be [rows, cols] with less than 2^31 columns, not ", args.x.shape());
  row_stride(kOp, "x", args.x);
  require(args.values.rank() == 2 && args.values.dim(1) <= args.x.dim(1), kOp,
          ": the first elements of rows of shape ", args.x.shape(), " cannot have shape ",
          args.values.shape());
  const Shape shape{args.x.dim(0), args.values.dim(1)};
  require_dense_operand(kOp, "values", args.values, args.x.dtype(), shape);
  require_dense_operand(kOp, "indices", args.indices, DType::i64, shape);
  require_apart(kOp, "values", args.values, "x", args.x);
  const int64_t bytes = sort_workspace_bytes(args.x.dim(0), args.x.dim(1), args.x.device().kind);
  require_workspace(kOp, args.workspace, bytes);
  require_same_device(kOp, {args.x, args.values, args.indices});
  if (args.values.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::sort(args); },
      [&] { cuda::sort(args, stream); });
}

Cost cost(const Sort& args) {
  return {.bytes_read = args.x.bytes(),
          .bytes_written = args.values.bytes() + args.indices.bytes()};
}

}  // namespace zinc::kernels
