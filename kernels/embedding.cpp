#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/gather_rows.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void embedding_forward(const EmbeddingForward& args);
void embedding_backward(const EmbeddingBackward& args);
}  // namespace cpu
namespace cuda {
void embedding_forward(const EmbeddingForward& args, StreamRef stream);
void embedding_backward(const EmbeddingBackward& args, StreamRef stream);
}  // namespace cuda

namespace {

constexpr int64_t kMaxRows = int64_t{1} << 31;

// A table of rows: [V, C], contiguous.
void require_table(std::string_view op, std::string_view name, const ConstView& table) {
  require_float(op, name, table);
  require(table.rank() == 2 && table.dim(0) <= kMaxRows, op, ": ", name,
          " must be [rows, columns] with at most 2^31 rows, not ", table.shape());
  require_contiguous(op, name, table);
}

void require_token_rows(std::string_view op, std::string_view name, const ConstView& x,
                        const ConstView& ids, int64_t cols) {
  require(x.rank() >= 1 && x.cols() == cols && x.numel() == ids.numel() * cols, op, ": ", name,
          " must have a row of ", cols, " for each of ", ids.numel(), " ids, not the shape ",
          x.shape());
  require_contiguous(op, name, x);
}

}  // namespace

int64_t embedding_backward_workspace_bytes(int64_t num_tokens) {
  return scatter_add_rows_workspace_bytes(num_tokens);
}

void embedding_forward(const EmbeddingForward& args, StreamRef stream) {
  constexpr auto kOp = "embedding";
  require_index(kOp, "ids", args.ids);
  require_table(kOp, "table", args.table);
  const int64_t cols = args.table.dim(1);
  require_operand(kOp, "y", args.y, args.table.dtype(), args.y.shape());
  require_token_rows(kOp, "y", args.y, args.ids, cols);
  require_apart(kOp, "y", args.y, "table", args.table);
  if (args.position_table) {
    require(!args.allows_absent, kOp, ": rows that are absent have no position");
    require_table(kOp, "position_table", args.position_table);
    require_dense_operand(kOp, "position_table", args.position_table, args.table.dtype(),
                          Shape{args.position_table.dim(0), cols});
    if (args.positions) {
      require_index(kOp, "positions", args.positions);
      require(args.positions.numel() == args.ids.numel(), kOp,
              ": positions must match ids: ", args.positions.numel(), " vs ", args.ids.numel());
    } else {
      require(args.sequence_length > 0, kOp, ": sequence_length must be given with position_table");
      const int64_t last = args.start + std::min(args.sequence_length, args.ids.numel());
      require(args.start >= 0 && last <= args.position_table.dim(0), kOp, ": positions ",
              args.start, " to ", last - 1, " are outside the position table of ",
              args.position_table.dim(0));
    }
  }
  require_same_device(kOp, {args.ids, args.table, args.position_table, args.positions, args.y});
  if (args.y.numel() == 0) return;
  run_on_device(
      kOp, args, args.table.device(), stream, [args] { cpu::embedding_forward(args); },
      [&] { cuda::embedding_forward(args, stream); });
}

void embedding_backward(const EmbeddingBackward& args, StreamRef stream) {
  constexpr auto kOp = "embedding_backward";
  require_index(kOp, "ids", args.ids);
  require_float(kOp, "dy", args.dy);
  require_table(kOp, "dtable", args.dtable);
  require_sum_target(kOp, "dtable", args.dtable, args.dy.dtype(), args.dtable.shape());
  require_token_rows(kOp, "dy", args.dy, args.ids, args.dtable.dim(1));
  require(args.ids.numel() <= kMaxRows, kOp, ": at most 2^31 tokens");
  require_workspace(kOp, args.workspace, embedding_backward_workspace_bytes(args.ids.numel()));
  require_apart(kOp, "dtable", args.dtable, "dy", args.dy);
  require_same_device(kOp, {args.ids, args.dy, args.dtable, args.workspace});
  if (args.dtable.numel() == 0) return;
  run_on_device(
      kOp, args, args.dtable.device(), stream, [args] { cpu::embedding_backward(args); },
      [&] { cuda::embedding_backward(args, stream); });
}

// A row of a table counts once per token that names it.
Cost cost(const EmbeddingForward& args) {
  const bool summed = static_cast<bool>(args.position_table);
  return {.bytes_read =
              args.ids.bytes() + optional_bytes(args.positions) + (summed ? 2 : 1) * args.y.bytes(),
          .bytes_written = args.y.bytes(),
          .flops = summed ? args.y.numel() : 0};
}

Cost cost(const EmbeddingBackward& args) {
  const int64_t touched = std::min(args.dtable.dim(0), args.ids.numel()) * args.dtable.dim(1) *
                          size_of(args.dtable.dtype());
  return {.bytes_read = args.ids.bytes() + args.dy.bytes() + (args.accumulate ? touched : 0),
          .bytes_written = args.accumulate ? touched : args.dtable.bytes(),
          .flops = args.dy.numel()};
}

}  // namespace zinc::kernels
