#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_adding.h"
#include "kernels/cpu/row_ids.h"

namespace zinc::kernels::cpu {
namespace {

void copy_row(const EmbeddingForward& args, int64_t row, int64_t i, bool past) {
  const int64_t bytes = args.table.dim(1) * size_of(args.table.dtype());
  auto* to = static_cast<std::byte*>(args.y.data()) + i * bytes;
  if (row == kAbsentRow) {
    std::fill_n(to, bytes, std::byte{0});
    return;
  }
  copy_bytes(to, static_cast<const std::byte*>(args.table.data()) + row * bytes, bytes, past);
}

void add_position(const EmbeddingForward& args, int64_t row, int64_t position, int64_t i) {
  if (args.table.dtype() != DType::f64) {
    return add_two_rows_lanes(args.table, row, args.position_table, position, args.y, i);
  }
  const int64_t cols = args.table.dim(1);
  const double* a = args.table.data_as<double>() + row * cols;
  const double* b = args.position_table.data_as<double>() + position * cols;
  double* y = args.y.data_as<double>() + i * cols;
  for (int64_t j = 0; j < cols; ++j) y[j] = a[j] + b[j];
}

}  // namespace

void embedding_forward(const EmbeddingForward& args) {
  constexpr auto kOp = "embedding";
  require_rows(kOp, "ids", args.ids, args.table.dim(0), args.allows_absent);
  if (args.position_table && args.positions) {
    require_rows(kOp, "positions", args.positions, args.position_table.dim(0));
  }
  const bool past = past_caches(args.y);
  const int64_t grain = std::max<int64_t>(1, past_caches_grain(1 << 14, past) / args.table.dim(1));
  const auto* table = static_cast<const std::byte*>(args.table.data());
  const int64_t row_bytes = args.table.dim(1) * size_of(args.table.dtype());
  const int64_t ahead = rows_ahead(row_bytes);
  parallel_for(args.ids.numel(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = id_at(args.ids, i);
      if (i + ahead < end) {
        const int64_t next = id_at(args.ids, i + ahead);
        if (next != kAbsentRow) prefetch_row(table + next * row_bytes, row_bytes);
      }
      if (!args.position_table) {
        copy_row(args, row, i, past);
        continue;
      }
      const int64_t position =
          args.positions ? id_at(args.positions, i) : args.start + i % args.sequence_length;
      add_position(args, row, position, i);
    }
    if (past) flush_past_caches();
  });
}

void embedding_backward(const EmbeddingBackward& args) {
  const int64_t rows = args.dtable.dim(0);
  require_rows("embedding_backward", "ids", args.ids, rows, args.allows_absent);
  const RowAdding plan{.order = order_by_row(args.ids, rows, args.workspace),
                       .rows = rows,
                       .cols = args.dtable.dim(1),
                       .x_stride = args.dtable.dim(1),
                       .y_stride = args.dtable.dim(1),
                       .accumulate = args.accumulate,
                       .ignored_id = args.ignored_id};
  add_rows(plan, args.dy, args.dtable);
}

}  // namespace zinc::kernels::cpu
