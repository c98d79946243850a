#include "kernels/embedding.h"

#include "kernels/cpu/row_adding.h"
#include "kernels/cpu/row_ids.h"

namespace zinc::kernels::cpu {

void embedding_forward(const EmbeddingForward& args) {
  constexpr auto kOp = "embedding_forward";
  require_rows(kOp, "ids", args.ids, args.table.dim(0));
  if (args.position_table && args.positions) {
    require_rows(kOp, "positions", args.positions, args.position_table.dim(0));
  }
  const int64_t cols = args.table.dim(1);
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / cols);
  dispatch_float(args.table.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* table = args.table.data_as<T>();
    const T* positions = args.position_table ? args.position_table.data_as<T>() : nullptr;
    T* y = args.y.data_as<T>();
    parallel_for(args.ids.numel(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = table + id_at(args.ids, i) * cols;
        T* out = y + i * cols;
        if (positions == nullptr) {
          std::copy_n(row, cols, out);
          continue;
        }
        const int64_t position =
            args.positions ? id_at(args.positions, i) : args.start + i % args.sequence_length;
        const T* shift = positions + position * cols;
        for (int64_t j = 0; j < cols; ++j) out[j] = T(A(row[j]) + A(shift[j]));
      }
    });
  });
}

void embedding_backward(const EmbeddingBackward& args) {
  const int64_t rows = args.dtable.dim(0);
  require_rows("embedding_backward", "ids", args.ids, rows);
  const RowAdding plan{.order = order_by_row(args.ids, rows, args.workspace),
                       .rows = rows,
                       .cols = args.dtable.dim(1),
                       .x_stride = args.dtable.dim(1),
                       .y_stride = args.dtable.dim(1),
                       .accumulate = args.accumulate,
                       .ignored_id = args.ignored_id};
  dispatch_float(args.dy.dtype(), [&]<class T>() {
    if (args.dtable.dtype() == args.dy.dtype()) {
      add_rows(plan, args.dy.data_as<T>(), args.dtable.data_as<T>());
    } else if constexpr (sizeof(T) == 2) {
      add_rows(plan, args.dy.data_as<T>(), args.dtable.data_as<float>());
    }
  });
}

}  // namespace zinc::kernels::cpu
