// y = value: the bits of the value, 16 bytes at a time. Traffic: y.
#include "kernels/fill.h"

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

template <class Bits>
void run(const View& y, Bits value, StreamRef stream) {
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
      return run(args.y, bits, stream);
    case 4:
      return run(args.y, static_cast<uint32_t>(bits), stream);
    case 2:
      return run(args.y, static_cast<uint16_t>(bits), stream);
    default:
      return run(args.y, static_cast<uint8_t>(bits), stream);
  }
}

}  // namespace zinc::kernels::cuda
