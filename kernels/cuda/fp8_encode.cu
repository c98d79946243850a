// Codes of 8 bits: the largest magnitude, by atomics on its bits, whose order does not matter; then
// the codes as they lie, transposed, or both. Bytes moved: x in twice, once where the largest is
// known, each form out once.
#include "kernels/fp8_encode.h"

#include <algorithm>

#include "kernels/cuda/elementwise.h"
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

constexpr int kTile = 64;  // rows and columns
constexpr int kEach = kPack<bf16>;
constexpr int kAcross = kTile / kEach;
constexpr int kDown = 32;  // rows of threads
using Codes = Pack<uint8_t, kEach>;

struct EncodeArgs {
  const bf16* x;
  int64_t rows, cols, stride;
  Fp8 format;
  uint8_t* codes;       // may be null
  uint8_t* transposed;  // may be null
  float* scale;
  bool writes_scale;
  bool x_aligned, codes_aligned, transposed_aligned;  // for packs
};

// Tiles go through shared memory, so that both forms are written along their rows.
__global__ void __launch_bounds__(kAcross* kDown) encode_kernel(EncodeArgs args) {
  ZINC_SHARED(uint8_t, tile, [kTile][kTile + 4]);
  const int exponent = fp8_scale_exponent(args.format, args.scale[0]);
  if (args.writes_scale && blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) {
    args.scale[1] = power_of_two(-exponent);
  }
  const float scale = power_of_two(exponent);
  const int64_t across = (args.cols + kTile - 1) / kTile;
  const int64_t tiles = across * ((args.rows + kTile - 1) / kTile);
  const int column = static_cast<int>(threadIdx.x) * kEach;
  for (int64_t item = blockIdx.x; item < tiles; item += gridDim.x) {
    const int64_t first_row = item / across * kTile, first_col = item % across * kTile;
    for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kDown) {
      const int64_t i = first_row + k, j = first_col + column;
      if (i >= args.rows) break;
      const auto x = load_part<kEach>(args.x + i * args.stride, j, args.cols, args.x_aligned);
      Codes codes;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const auto value = static_cast<float>(x.at[e]);
        codes.at[e] = fp8_code(args.format, round_to_fp8(args.format, exponent, value) * scale);
        tile[k][column + e] = codes.at[e];
      }
      if (args.codes != nullptr) {
        store_part(args.codes + i * args.cols, j, args.cols, args.codes_aligned, codes);
      }
    }
    if (args.transposed == nullptr) continue;
    __syncthreads();
    for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kDown) {
      const int64_t i = first_row + column, j = first_col + k;
      if (j >= args.cols) break;
      Codes codes;
#pragma unroll
      for (int e = 0; e < kEach; ++e) codes.at[e] = i + e < args.rows ? tile[column + e][k] : 0;
      store_part(args.transposed + j * args.rows, i, args.rows, args.transposed_aligned, codes);
    }
    __syncthreads();  // before the next tile is written
  }
}

__global__ void __launch_bounds__(kMapThreads)
    decode_kernel(const uint8_t* codes, int64_t n, int64_t cols, int64_t stride, Fp8 format,
                  const float* scale, bf16* y) {
  const float unscale = scale[1];
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    const int64_t row = i / cols;
    y[i] = bf16(fp8_value(format, codes[row * stride + i - row * cols]) * unscale);
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

void fp8_encode(const Fp8Encode& args, StreamRef stream) {
  const ConstView& x = args.x;
  auto* const scale = args.scale.data_as<float>();
  if (!args.is_known) find_largest(x, scale, stream);
  const int64_t tiles = packs_of(x.dim(0), kTile) * packs_of(x.dim(1), kTile);
  const auto codes_of = [](const View& view) { return view ? view.data_as<uint8_t>() : nullptr; };
  const auto fits = [](const ConstView& view) {
    return view && reinterpret_cast<uintptr_t>(view.data()) % sizeof(Codes) == 0 &&
           view.dim(1) % kEach == 0;
  };
  const EncodeArgs to_encode{.x = x.data_as<bf16>(),
                             .rows = x.dim(0),
                             .cols = x.dim(1),
                             .stride = x.stride(0),
                             .format = args.format,
                             .codes = codes_of(args.codes),
                             .transposed = codes_of(args.transposed),
                             .scale = scale,
                             .writes_scale = !args.is_known,
                             .x_aligned = is_aligned_for_packs(x, x.stride(0)),
                             .codes_aligned = fits(args.codes),
                             .transposed_aligned = fits(args.transposed)};
  launch(encode_kernel, dim3(static_cast<unsigned>(std::clamp<int64_t>(tiles, 1, kMaxMapBlocks))),
         dim3(kAcross, kDown), 0, stream, to_encode);
}

void fp8_decode(const Fp8Decode& args, StreamRef stream) {
  const int64_t n = args.codes.numel();
  if (n == 0) return;
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(n, kMapThreads));
  launch(decode_kernel, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
         args.codes.data_as<uint8_t>(), n, args.codes.dim(1), args.codes.stride(0), args.format,
         args.scale.data_as<float>(), args.y.data_as<bf16>());
}

}  // namespace zinc::kernels::cuda
