// y = value: the bits of the value, 16 bytes at a time, or pieces of y, an element at a time.
// Traffic: y.
#include "kernels/fill.h"

#include <algorithm>

#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

template <class Bits>
__global__ void __launch_bounds__(kMapThreads)
    fill_kernel(ElementSpace<1> space, Bits* y, Bits value) {
  Pack<Bits> pack;
#pragma unroll
  for (int i = 0; i < kPack<Bits>; ++i) pack.at[i] = value;
  const int64_t per_row = (space.cols + kPack<Bits> - 1) / kPack<Bits>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * space.rows;
       item += step) {
    int64_t offset[1] = {};
    const int64_t run = locate(space, item, per_row, offset);
    store_pack(y + offset[0], run, space.cols, space.aligned, pack);
  }
}

constexpr size_t kMaxPieces = 128;  // pieces of a launch

struct Pieces {
  TensorSlice::Piece at[kMaxPieces];
};

// A row of blocks a piece.
template <class Bits>
__global__ void __launch_bounds__(kMapThreads)
    fill_pieces_kernel(Pieces pieces, Bits* y, Bits value) {
  const TensorSlice::Piece piece = pieces.at[blockIdx.y];
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < piece.count; i += step) {
    y[piece.begin + i] = value;
  }
}

template <class Bits>
void run_pieces(const Fill& args, Bits value, StreamRef stream) {
  for (size_t begin = 0; begin < args.pieces.size(); begin += kMaxPieces) {
    const size_t count = std::min(kMaxPieces, args.pieces.size() - begin);
    Pieces pieces{};
    std::copy_n(args.pieces.begin() + static_cast<ptrdiff_t>(begin), count, pieces.at);
    int64_t longest = 1;
    for (size_t i = 0; i < count; ++i) longest = std::max(longest, pieces.at[i].count);
    const int64_t blocks = std::min(kMaxMapBlocks, packs_of(longest, kMapThreads));
    launch(fill_pieces_kernel<Bits>,
           dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)), dim3(kMapThreads), 0,
           stream, pieces, static_cast<Bits*>(args.y.data()), value);
  }
}

template <class Bits>
void run(const Fill& args, Bits value, StreamRef stream) {
  if (!args.pieces.empty()) return run_pieces(args, value, stream);
  const View& y = args.y;
  const auto space = element_space(std::array<ConstView, 1>{y});
  const int64_t items = packs_of(space.cols, kPack<Bits>) * space.rows;
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
  launch(fill_kernel<Bits>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
         space, static_cast<Bits*>(y.data()), value);
}

}  // namespace

void fill(const Fill& args, StreamRef stream) {
  const uint64_t bits = bits_of(args.value, args.y.dtype());
  switch (size_of(args.y.dtype())) {
    case 8:
      return run(args, bits, stream);
    case 4:
      return run(args, static_cast<uint32_t>(bits), stream);
    case 2:
      return run(args, static_cast<uint16_t>(bits), stream);
    default:
      return run(args, static_cast<uint8_t>(bits), stream);
  }
}

}  // namespace zinc::kernels::cuda
