// Rounding to 8 bits: the largest magnitude, by atomics on its bits, whose order does not matter;
// then a map, or the codes for the library's products. Bytes moved: x in twice, once where the
// largest is known, y out.
#include "kernels/fp8_round.h"

#include <algorithm>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/warp.h"
#include "kernels/fill.h"

namespace zinc::kernels::cuda {
namespace {

// Magnitudes have the order of their bits; a NaN is above infinity.
template <class Aligned>
__global__ void __launch_bounds__(kMapThreads)
    largest_kernel(ElementSpace<1> space, Aligned aligned, const bf16* x, unsigned* largest) {
  constexpr int kCount = kPack<bf16>;
  const int64_t per_row = (space.cols + kCount - 1) / kCount;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  unsigned mine = 0;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * space.rows;
       item += step) {
    int64_t offset[1] = {};
    const int64_t first = locate(space, item, per_row, offset) * kCount;
    float values[kCount];  // 0 beyond the end
    load_floats(x + offset[0], first, space.cols, aligned, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const unsigned bits = std::bit_cast<unsigned>(values[i]) & 0x7fffffffu;
      mine = bits > mine ? bits : mine;
    }
  }
  mine = __reduce_max_sync(kFullWarp, mine);
  if (threadIdx.x % kWarp == 0) atomicMax(largest, mine);
}

struct ToGrid : HotFunction {
  Fp8 format;
  const float* largest;
  int exponent = 0;
  __device__ __forceinline__ void begin() { exponent = fp8_scale_exponent(format, *largest); }
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = round_to_fp8(format, exponent, in[0]);
  }
};

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // rows of threads: each takes four rows of the tile

// Tiles of 32 x 32 go through shared memory, so that both sides run along their rows.
__global__ void __launch_bounds__(kTile* kTileRows)
    encode_kernel(Fp8Encode args, const bf16* x, int64_t rows, int64_t cols, int64_t stride) {
  ZINC_SHARED(uint8_t, tile, [kTile][kTile + 4]);
  const int exponent = fp8_scale_exponent(args.format, *args.largest);
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
    *args.unscale = power_of_two(-exponent);
  }
  const float scale = power_of_two(exponent);
  const int64_t across = (cols + kTile - 1) / kTile;
  const int64_t tiles = across * ((rows + kTile - 1) / kTile);
  for (int64_t item = blockIdx.x; item < tiles; item += gridDim.x) {
    const int64_t first_row = item / across * kTile, first_col = item % across * kTile;
    for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kTileRows) {
      const int64_t i = first_row + k, j = first_col + threadIdx.x;
      if (i < rows && j < cols) {
        const float value = static_cast<float>(x[i * stride + j]);
        tile[k][threadIdx.x] =
            fp8_code(args.format, round_to_fp8(args.format, exponent, value) * scale);
      }
    }
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kTileRows) {
      const int64_t i = first_row + (args.transposed ? static_cast<int64_t>(threadIdx.x) : k);
      const int64_t j = first_col + (args.transposed ? k : static_cast<int64_t>(threadIdx.x));
      if (i < rows && j < cols) {
        args.codes[args.transposed ? j * rows + i : i * cols + j] =
            args.transposed ? tile[threadIdx.x][k] : tile[k][threadIdx.x];
      }
    }
    __syncthreads();  // before the next tile is read
  }
}

void find_largest(const ConstView& x, float* largest, StreamRef stream) {
  kernels::fill({.y = View(largest, DType::f32, Shape{1}, x.device()), .value = 0.0}, stream);
  if (x.numel() == 0) return;
  const auto space = element_space(std::array<ConstView, 1>{x});
  const int64_t items = packs_of(space.cols, kPack<bf16>) * space.rows;
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
  dispatch_whole_packs(space.cols, kPack<bf16>, space.aligned, [&]<class Aligned>(Aligned aligned) {
    launch(largest_kernel<Aligned>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0,
           stream, space, aligned, x.data_as<bf16>(), reinterpret_cast<unsigned*>(largest));
  });
}

}  // namespace

void fp8_round(const Fp8Round& args, StreamRef stream) {
  auto* const largest = args.largest.data_as<float>();
  if (!args.is_known) find_largest(args.x, largest, stream);
  if (args.x.numel() == 0) return;
  ToGrid to_grid;
  to_grid.format = args.format;
  to_grid.largest = largest;
  launch_map<bf16, bf16>(to_grid, std::array<View, 1>{args.y}, std::array<ConstView, 1>{args.x},
                         stream);
}

void fp8_encode(const Fp8Encode& args, StreamRef stream) {
  const ConstView& x = args.x;
  if (!args.is_known) find_largest(x, args.largest, stream);
  const int64_t tiles = packs_of(x.dim(0), kTile) * packs_of(x.dim(1), kTile);
  launch(encode_kernel, dim3(static_cast<unsigned>(std::min(kMaxMapBlocks, tiles))),
         dim3(kTile, kTileRows), 0, stream, args, x.data_as<bf16>(), x.dim(0), x.dim(1),
         x.stride(0));
}

}  // namespace zinc::kernels::cuda
