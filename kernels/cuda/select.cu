// y = mask ? a : b by bits: a thread per pack of y. Traffic: mask, both sides that are arrays, y.
#include "kernels/select.h"

#include "kernels/cuda/elementwise.h"
#include "kernels/fill.h"

namespace zinc::kernels::cuda {
namespace {

template <class Bits>
struct Side {
  const Bits* array;  // null: `value`
  Bits value;
};

template <class Bits>
__device__ __forceinline__ void load_side(const Side<Bits>& side, int64_t offset, int64_t step,
                                          int64_t first, int64_t n, bool aligned,
                                          Bits (&out)[kPack<Bits>]) {
  if (side.array != nullptr) {
    load_or_repeat(side.array + offset, step, first, n, aligned, out);
  } else {
#pragma unroll
    for (int i = 0; i < kPack<Bits>; ++i) out[i] = side.value;
  }
}

// Views of the space: y, mask, a, b; a side without an array stands as y.
template <class Bits>
__global__ void __launch_bounds__(kMapThreads)
    select_kernel(ElementSpace<4> space, Bits* y, const uint8_t* mask, Side<Bits> a, Side<Bits> b) {
  constexpr int kCount = kPack<Bits>;
  const int64_t per_row = (space.cols + kCount - 1) / kCount;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * space.rows;
       item += step) {
    int64_t offset[4] = {};
    const int64_t first = locate(space, item, per_row, offset) * kCount;
    uint8_t chosen[kCount];
    Bits left[kCount];
    Bits right[kCount];
    load_or_repeat(mask + offset[1], space.step[1], first, space.cols, space.aligned, chosen);
    load_side(a, offset[2], space.step[2], first, space.cols, space.aligned, left);
    load_side(b, offset[3], space.step[3], first, space.cols, space.aligned, right);
    Bits out[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] = chosen[i] != 0 ? left[i] : right[i];
    store_floats(y + offset[0], first, space.cols, space.aligned, out);
  }
}

template <class Bits>
void run(const Select& args, StreamRef stream) {
  const ConstView y = args.y;
  const auto space = element_space(
      y.shape(), std::array<ConstView, 4>{y, args.mask, args.a ? args.a : y, args.b ? args.b : y});
  const auto side = [&](const ConstView& view, double value) {
    return Side<Bits>{static_cast<const Bits*>(view.data()),
                      static_cast<Bits>(bits_of(value, y.dtype()))};
  };
  const int64_t items = packs_of(space.cols, kPack<Bits>) * space.rows;
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(items, kMapThreads));
  launch(select_kernel<Bits>, dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream,
         space, static_cast<Bits*>(args.y.data()), args.mask.data_as<uint8_t>(),
         side(args.a, args.a_value), side(args.b, args.b_value));
}

}  // namespace

void select(const Select& args, StreamRef stream) {
  switch (size_of(args.y.dtype())) {
    case 8:
      return run<uint64_t>(args, stream);
    case 4:
      return run<uint32_t>(args, stream);
    case 2:
      return run<uint16_t>(args, stream);
    default:
      return run<uint8_t>(args, stream);
  }
}

}  // namespace zinc::kernels::cuda
