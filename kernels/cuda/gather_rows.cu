// Rows by number, copied as bits, 16 bytes at a time; sums of rows that share a number:
// row_order.h. Traffic: ids, a row in and a row out per id.
#include "kernels/gather_rows.h"

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/indices.h"
#include "kernels/cuda/row_order.h"

namespace zinc::kernels::cuda {
namespace {

template <class Bits>
struct RowCopies {
  Indices ids;
  TableRows rows;
  int64_t count, cols;
  Bits* table;
  int64_t table_stride;
  Bits* list;
  int64_t list_stride;
  bool aligned;
};

template <bool kGather, class Bits>
__global__ void __launch_bounds__(kMapThreads) copy_rows_kernel(RowCopies<Bits> args) {
  const int64_t per_row = (args.cols + kPack<Bits> - 1) / kPack<Bits>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * args.count;
       item += step) {
    const int64_t i = item / per_row;
    const int64_t p = item - i * per_row;
    const int64_t row = args.ids[i];
    Bits* mine = args.list + i * args.list_stride;
    Bits* place = args.table + row * args.table_stride;
    const bool found = args.rows.has(row, i);
    if constexpr (kGather) {
      Pack<Bits> pack;
      if (found) {
        pack = load_pack(place, p, args.cols, args.aligned);
      } else {
#pragma unroll
        for (int k = 0; k < kPack<Bits>; ++k) pack.at[k] = static_cast<Bits>(~Bits{0});
      }
      store_pack(mine, p, args.cols, args.aligned, pack);
    } else if (found) {
      store_pack(place, p, args.cols, args.aligned, load_pack(mine, p, args.cols, args.aligned));
    }
  }
}

// Elements between the rows. The stride of a view with one row says nothing.
int64_t stride_of_rows(const ConstView& view) {
  return view.dim(0) <= 1 ? view.dim(1) : view.stride(0);
}

template <bool kGather, class Bits>
void copy_rows(const ConstView& ids, const ConstView& table, const ConstView& list,
               StreamRef stream) {
  // Only the side that the op overwrites is written.
  const RowCopies<Bits> copies{
      Indices(ids),
      TableRows(table.dim(0), kGather ? "gather_rows" : "scatter_rows", "ids", stream),
      ids.numel(),
      table.dim(1),
      static_cast<Bits*>(const_cast<void*>(table.data())),
      stride_of_rows(table),
      static_cast<Bits*>(const_cast<void*>(list.data())),
      stride_of_rows(list),
      is_aligned_for_packs(table, stride_of_rows(table)) &&
          is_aligned_for_packs(list, stride_of_rows(list))};
  const int64_t items = copies.count * packs_of(copies.cols, kPack<Bits>);
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
  launch(copy_rows_kernel<kGather, Bits>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0,
         stream, copies);
}

template <bool kGather>
void copy_rows_of_any(const ConstView& ids, const ConstView& table, const ConstView& list,
                      StreamRef stream) {
  switch (size_of(table.dtype())) {
    case 8:
      return copy_rows<kGather, uint64_t>(ids, table, list, stream);
    case 4:
      return copy_rows<kGather, uint32_t>(ids, table, list, stream);
    case 2:
      return copy_rows<kGather, uint16_t>(ids, table, list, stream);
    default:
      return copy_rows<kGather, uint8_t>(ids, table, list, stream);
  }
}

}  // namespace

void gather_rows(const GatherRows& args, StreamRef stream) {
  copy_rows_of_any<true>(args.ids, args.x, args.y, stream);
}

void scatter_rows(const ScatterRows& args, StreamRef stream) {
  copy_rows_of_any<false>(args.ids, args.y, args.x, stream);
}

void scatter_add_rows(const ScatterAddRows& args, StreamRef stream) {
  add_rows({.op = "scatter_add_rows",
            .ids = args.ids,
            .x = args.x,
            .y = args.y,
            .rows = args.y.dim(0),
            .cols = args.y.dim(1),
            .x_stride = stride_of_rows(args.x),
            .y_stride = stride_of_rows(args.y),
            .accumulate = true,
            .ignored_id = -1,
            .workspace = args.workspace},
           stream);
}

}  // namespace zinc::kernels::cuda
