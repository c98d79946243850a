// Where the last dimension stays the last, the result is a copy of strided rows (copy.cu).
// Otherwise tiles of 32 x 32 elements go through shared memory, so that both reading and writing
// run along a last dimension: of x on the way in, of y on the way out. Traffic: x and y.
#include "kernels/permute.h"

#include "kernels/copy.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {

void copy(const Copy& args, StreamRef stream);

namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // rows of threads: each takes four rows of the tile

struct TileSpace {
  int64_t x_cols, x_stride;  // x's last dimension, and the stride in y of that
  int64_t y_cols, y_stride;  // y's last dimension, and the stride in x of that
  int outer = 0;             // all other dimensions
  int64_t extent[kMaxRank] = {};
  int64_t from[kMaxRank] = {};
  int64_t to[kMaxRank] = {};
  int64_t count = 1;  // number of matrices
};

template <class Bits>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(TileSpace space, const Bits* x, Bits* y) {
  ZINC_SHARED(Bits, tile, [kTile][kTile + 1]);
  const int64_t across = (space.x_cols + kTile - 1) / kTile;
  const int64_t down = (space.y_cols + kTile - 1) / kTile;
  for (int64_t item = blockIdx.x; item < across * down * space.count; item += gridDim.x) {
    int64_t matrix = item / (across * down);
    const int64_t place = item - matrix * across * down;
    const int64_t first_x = place % across * kTile;
    const int64_t first_y = place / across * kTile;
    int64_t from = 0;
    int64_t to = 0;
    for (int d = 0; d < space.outer; ++d) {
      const int64_t index = matrix % space.extent[d];
      matrix /= space.extent[d];
      from += index * space.from[d];
      to += index * space.to[d];
    }
    for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kTileRows) {
      const int64_t i = first_y + k;
      const int64_t j = first_x + threadIdx.x;
      if (i < space.y_cols && j < space.x_cols) {
        tile[k][threadIdx.x] = x[from + i * space.y_stride + j];
      }
    }
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kTileRows) {
      const int64_t i = first_y + threadIdx.x;
      const int64_t j = first_x + k;
      if (i < space.y_cols && j < space.x_cols) {
        y[to + j * space.x_stride + i] = tile[threadIdx.x][k];
      }
    }
    __syncthreads();  // before the next tile is read
  }
}

TileSpace tile_space(const Permute& args) {
  const int rank = args.x.rank();
  const int y_last = args.order[static_cast<size_t>(rank - 1)];
  TileSpace space{.x_cols = args.x.cols(),
                  .x_stride = 0,
                  .y_cols = args.y.cols(),
                  .y_stride = args.x.stride(y_last)};
  for (int d = rank - 2; d >= 0; --d) {
    const int source = args.order[static_cast<size_t>(d)];
    if (source == rank - 1) {
      space.x_stride = args.y.stride(d);
      continue;
    }
    space.extent[space.outer] = args.y.dim(d);
    space.from[space.outer] = args.x.stride(source);
    space.to[space.outer] = args.y.stride(d);
    space.count *= args.y.dim(d);
    ++space.outer;
  }
  return space;
}

template <class Bits>
void transpose(const Permute& args, StreamRef stream) {
  const TileSpace space = tile_space(args);
  const int64_t tiles = packs_of(space.x_cols, kTile) * packs_of(space.y_cols, kTile) * space.count;
  launch(transpose_kernel<Bits>, dim3(static_cast<unsigned>(std::min(kMaxMapBlocks, tiles))),
         dim3(kTile, kTileRows), 0, stream, space, static_cast<const Bits*>(args.x.data()),
         static_cast<Bits*>(args.y.data()));
}

}  // namespace

void permute(const Permute& args, StreamRef stream) {
  const int rank = args.x.rank();
  if (args.order[static_cast<size_t>(rank - 1)] == rank - 1) {
    Strides strides{};
    for (int d = 0; d < rank; ++d) {
      strides[static_cast<size_t>(d)] = args.x.stride(args.order[static_cast<size_t>(d)]);
    }
    const ConstView x(args.x.data(), args.x.dtype(), args.y.shape(), strides, args.x.device(),
                      args.x.tier());
    return copy({.x = x, .y = args.y}, stream);
  }
  switch (size_of(args.x.dtype())) {
    case 8:
      return transpose<uint64_t>(args, stream);
    case 4:
      return transpose<uint32_t>(args, stream);
    case 2:
      return transpose<uint16_t>(args, stream);
    default:
      return transpose<uint8_t>(args, stream);
  }
}

}  // namespace zinc::kernels::cuda
