#include "kernels/gather_rows.h"

#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_adding.h"
#include "kernels/cpu/row_ids.h"

namespace zinc::kernels::cpu {
namespace {

// Elements between the rows. The stride of a view with one row says nothing.
int64_t stride_of_rows(const ConstView& view) {
  return view.dim(0) <= 1 ? view.dim(1) : view.stride(0);
}

// Copies a row per id, from the table to the list where the table is const, else the other way.
template <class Table, class List>
void copy_rows(const ConstView& ids, int64_t row_bytes, Table* table, int64_t table_stride,
               List* list, int64_t list_stride) {
  const bool past = past_caches(ids.numel() * row_bytes);
  const int64_t grain = std::max<int64_t>(1, past_caches_grain(1 << 15, past) / (row_bytes + 1));
  const int64_t ahead = rows_ahead(row_bytes);
  parallel_for(ids.numel(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (std::is_const_v<Table> && i + ahead < end) {
        prefetch_row(table + id_at(ids, i + ahead) * table_stride, row_bytes);
      }
      auto* row = table + id_at(ids, i) * table_stride;
      auto* mine = list + i * list_stride;
      if constexpr (std::is_const_v<Table>) {
        copy_bytes(mine, row, row_bytes, past);
      } else {
        copy_bytes(row, mine, row_bytes, past);
      }
    }
    if (past) flush_past_caches();
  });
}

}  // namespace

void gather_rows(const GatherRows& args) {
  require_rows("gather_rows", "ids", args.ids, args.x.dim(0));
  const int64_t size = size_of(args.x.dtype());
  copy_rows(args.ids, args.x.dim(1) * size, static_cast<const std::byte*>(args.x.data()),
            stride_of_rows(args.x) * size, static_cast<std::byte*>(args.y.data()),
            stride_of_rows(args.y) * size);
}

void scatter_rows(const ScatterRows& args) {
  require_rows("scatter_rows", "ids", args.ids, args.y.dim(0));
  const int64_t size = size_of(args.x.dtype());
  copy_rows(args.ids, args.x.dim(1) * size, static_cast<std::byte*>(args.y.data()),
            stride_of_rows(args.y) * size, static_cast<const std::byte*>(args.x.data()),
            stride_of_rows(args.x) * size);
}

void scatter_add_rows(const ScatterAddRows& args) {
  const int64_t rows = args.y.dim(0);
  require_rows("scatter_add_rows", "ids", args.ids, rows);
  const RowAdding plan{.order = order_by_row(args.ids, rows, args.workspace),
                       .rows = rows,
                       .cols = args.y.dim(1),
                       .x_stride = stride_of_rows(args.x),
                       .y_stride = stride_of_rows(args.y),
                       .accumulate = true,
                       .ignored_id = -1};
  add_rows(plan, args.x, args.y);
}

}  // namespace zinc::kernels::cpu
