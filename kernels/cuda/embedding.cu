// Rows of tables; a row of y in 16-byte accesses. The gradient: row_order.h. Traffic: a row of each
// table in per token, y out.
#include "kernels/embedding.h"

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/row_order.h"
#include "kernels/fill.h"

namespace zinc::kernels::cuda {

void fill(const Fill& args, StreamRef stream);

namespace {

template <class T>
struct Lookup {
  Indices ids, positions;
  const T* table;
  TableRows rows;
  const T* position_table;  // null: none
  TableRows position_rows;
  int64_t start, sequence_length;
  T* y;
  int64_t tokens, cols;
  bool aligned, allows_absent;
};

template <class T>
__global__ void __launch_bounds__(kMapThreads) lookup_kernel(Lookup<T> args) {
  constexpr int kCount = kPack<T>;
  const int64_t per_row = (args.cols + kCount - 1) / kCount;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * args.tokens;
       item += step) {
    const int64_t i = item / per_row;
    const int64_t first = (item - i * per_row) * kCount;
    const int64_t row = args.ids[i];
    int64_t position = 0;
    if (args.position_table != nullptr) {
      position =
          args.positions.is_absent() ? args.start + i % args.sequence_length : args.positions[i];
    }
    float values[kCount];
    if (args.allows_absent && row == kAbsentRow) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) values[k] = 0.0f;
    } else if (!args.rows.has(row, i) ||
               (args.position_table != nullptr && !args.position_rows.has(position, i))) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) values[k] = NAN;
    } else {
      load_floats(args.table + row * args.cols, first, args.cols, args.aligned, values);
      if (args.position_table != nullptr) {
        float place[kCount];
        load_floats(args.position_table + position * args.cols, first, args.cols, args.aligned,
                    place);
#pragma unroll
        for (int k = 0; k < kCount; ++k) values[k] += place[k];
      }
    }
    store_floats(args.y + i * args.cols, first, args.cols, args.aligned, values);
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, StreamRef stream) {
  constexpr auto kOp = "embedding";
  dispatch_device_float(kOp, args.table.dtype(), [&]<class T>() {
    const int64_t cols = args.table.dim(1);
    const int64_t tokens = args.ids.numel();
    const ConstView& places = args.position_table;
    const Lookup<T> lookup{Indices(args.ids),
                           Indices(args.positions),
                           args.table.data_as<T>(),
                           TableRows(args.table.dim(0), kOp, "ids", stream),
                           places ? places.data_as<T>() : nullptr,
                           TableRows(places ? places.dim(0) : 0, kOp, "positions", stream),
                           args.start,
                           args.sequence_length,
                           args.y.data_as<T>(),
                           tokens,
                           cols,
                           is_aligned_for_packs(args.table, cols) &&
                               is_aligned_for_packs(places, cols) &&
                               is_aligned_for_packs(args.y, cols),
                           args.allows_absent};
    const int64_t items = tokens * packs_of(cols, kPack<T>);
    const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
    launch(lookup_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
           lookup);
  });
}

void embedding_backward(const EmbeddingBackward& args, StreamRef stream) {
  const int64_t cols = args.dtable.dim(1);
  if (!args.accumulate) fill({.y = args.dtable, .value = 0.0}, stream);
  add_rows({.op = "embedding_backward",
            .ids = args.ids,
            .x = args.dy,
            .y = args.dtable,
            .rows = args.dtable.dim(0),
            .cols = cols,
            .x_stride = cols,
            .y_stride = cols,
            .accumulate = args.accumulate,
            .ignored_id = args.ignored_id,
            .allows_absent = args.allows_absent,
            .workspace = args.workspace},
           stream);
}

}  // namespace zinc::kernels::cuda
