#include "kernels/gather_rows.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/cpu/row_ids.h"
#include "kernels/launch.h"

namespace zinc::kernels {

namespace cpu {
void gather_rows(const GatherRows& args);
void scatter_rows(const ScatterRows& args);
void scatter_add_rows(const ScatterAddRows& args);
}  // namespace cpu
namespace cuda {
void gather_rows(const GatherRows& args, StreamRef stream);
void scatter_rows(const ScatterRows& args, StreamRef stream);
void scatter_add_rows(const ScatterAddRows& args, StreamRef stream);
}  // namespace cuda

namespace {

constexpr int64_t kMaxMatrixRows = int64_t{1} << 31;

// `table` has the rows that ids name, `list` a row per id.
void require_rows_and_ids(std::string_view op, const ConstView& table, const ConstView& list,
                          const ConstView& ids) {
  require_index(op, "ids", ids);
  for (const ConstView& view : {table, list}) {
    require_operand(op, "x or y", view, view.dtype(), view.shape());
    require(view.rank() == 2 && view.dim(0) <= kMaxMatrixRows, op,
            ": x and y must be [rows, columns] with at most 2^31 rows, not ", view.shape());
  }
  require(ids.rank() == 1 && ids.numel() == list.dim(0), op, ": ids must be [", list.dim(0),
          "], not ", ids.shape());
  require(table.dim(1) == list.dim(1), op, ": x and y must have as many columns: ", table.dim(1),
          " vs ", list.dim(1));
  require_apart(op, "y", table, "x", list);
  require_same_device(op, {table, list, ids});
}

}  // namespace

int64_t scatter_add_rows_workspace_bytes(int64_t num_rows) {
  return row_order_workspace_bytes(num_rows);
}

void gather_rows(const GatherRows& args, StreamRef stream) {
  constexpr auto kOp = "gather_rows";
  require_rows_and_ids(kOp, args.x, args.y, args.ids);
  require_dtype(kOp, "y", args.y, args.x.dtype());
  if (args.y.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::gather_rows(args); },
      [&] { cuda::gather_rows(args, stream); });
}

void scatter_rows(const ScatterRows& args, StreamRef stream) {
  constexpr auto kOp = "scatter_rows";
  require_rows_and_ids(kOp, args.y, args.x, args.ids);
  require_dtype(kOp, "y", args.y, args.x.dtype());
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::scatter_rows(args); },
      [&] { cuda::scatter_rows(args, stream); });
}

void scatter_add_rows(const ScatterAddRows& args, StreamRef stream) {
  constexpr auto kOp = "scatter_add_rows";
  require_rows_and_ids(kOp, args.y, args.x, args.ids);
  require_float(kOp, "x", args.x);
  require(args.y.dtype() == args.x.dtype() ||
              (args.y.dtype() == DType::f32 && args.x.dtype() != DType::f64),
          kOp, ": y must be of the dtype of x, ", args.x.dtype(), ", or f32, not ", args.y.dtype());
  require_workspace(kOp, args.workspace, scatter_add_rows_workspace_bytes(args.ids.numel()));
  require_same_device(kOp, {args.x, args.workspace});
  if (args.x.numel() == 0) return;
  run_on_device(
      kOp, args, args.x.device(), stream, [args] { cpu::scatter_add_rows(args); },
      [&] { cuda::scatter_add_rows(args, stream); });
}

Cost cost(const GatherRows& args) {
  return {.bytes_read = args.ids.bytes() + args.y.bytes(), .bytes_written = args.y.bytes()};
}

Cost cost(const ScatterRows& args) {
  return {.bytes_read = args.ids.bytes() + args.x.bytes(), .bytes_written = args.x.bytes()};
}

Cost cost(const ScatterAddRows& args) {
  const int64_t touched =
      std::min(args.y.dim(0), args.ids.numel()) * args.y.dim(1) * size_of(args.y.dtype());
  return {.bytes_read = args.ids.bytes() + args.x.bytes() + touched,
          .bytes_written = touched,
          .flops = args.x.numel()};
}

}  // namespace zinc::kernels
