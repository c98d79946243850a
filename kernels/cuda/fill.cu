// y = value: the bits of the value, 16 bytes at a time. Traffic: y.
#include "kernels/fill.h"

#include <bit>

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
  const auto narrow = static_cast<float>(args.value);
  switch (args.y.dtype()) {
    case DType::f64:
      return run(args.y, std::bit_cast<uint64_t>(args.value), stream);
    case DType::f32:
      return run(args.y, std::bit_cast<uint32_t>(narrow), stream);
    case DType::bf16:
      return run(args.y, bf16(narrow).bits, stream);
    case DType::f16:
      return run(args.y, f16(narrow).bits, stream);
    case DType::i64:
      return run(args.y, static_cast<uint64_t>(static_cast<int64_t>(args.value)), stream);
    case DType::i32:
      return run(args.y, static_cast<uint32_t>(static_cast<int32_t>(args.value)), stream);
    case DType::u8:
      return run(args.y, static_cast<uint8_t>(args.value), stream);
  }
}

}  // namespace zinc::kernels::cuda
