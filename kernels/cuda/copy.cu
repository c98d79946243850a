// y = x, converting the dtype where they differ. The same dtype: bits, 16 bytes at a time; f32,
// bf16 and f16 among each other: a map (elementwise.h); f64 and integers, which no hot path
// converts: an element per thread. Traffic: x and y.
#include "kernels/copy.h"

#include <type_traits>

#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

template <class Bits>
__global__ void __launch_bounds__(kMapThreads)
    bits_kernel(ElementSpace<2> space, Bits* y, const Bits* x) {
  const int64_t per_row = (space.cols + kPack<Bits> - 1) / kPack<Bits>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < per_row * space.rows;
       item += step) {
    int64_t offset[2] = {};
    const int64_t run = locate(space, item, per_row, offset);
    store_pack(y + offset[0], run, space.cols, space.aligned,
               load_pack(x + offset[1], run, space.cols, space.aligned));
  }
}

template <class T>
inline constexpr bool kIs16Bit = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

template <class To, class From>
__device__ __forceinline__ To converted(From x) {
  if constexpr (kIs16Bit<From>) {
    return converted<To>(static_cast<float>(x));
  } else if constexpr (kIs16Bit<To>) {
    return To(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <class To, class From>
__global__ void __launch_bounds__(kMapThreads)
    convert_kernel(ElementSpace<2> space, To* y, const From* x) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       item < space.cols * space.rows; item += step) {
    int64_t offset[2] = {};
    const int64_t c = locate(space, item, space.cols, offset);
    y[offset[0] + c] = converted<To>(x[offset[1] + c]);
  }
}

dim3 blocks_for(int64_t items) {
  return dim3(static_cast<unsigned>(std::min(kMaxMapBlocks, packs_of(items, kMapThreads))));
}

template <class Bits>
void copy_bits(const Copy& args, const ElementSpace<2>& space, StreamRef stream) {
  launch(bits_kernel<Bits>, blocks_for(packs_of(space.cols, kPack<Bits>) * space.rows),
         dim3(kMapThreads), 0, stream, space, static_cast<Bits*>(args.y.data()),
         static_cast<const Bits*>(args.x.data()));
}

template <class Body>
void dispatch_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::i64:
      return body.template operator()<int64_t>();
    case DType::i32:
      return body.template operator()<int32_t>();
    case DType::u8:
      return body.template operator()<uint8_t>();
    default:
      return dispatch_float(dtype, body);
  }
}

bool is_short(DType dtype) { return is_float(dtype) && dtype != DType::f64; }

}  // namespace

void copy(const Copy& args, StreamRef stream) {
  const auto space = element_space(std::array<ConstView, 2>{args.y, args.x});
  if (args.x.dtype() == args.y.dtype()) {
    switch (size_of(args.x.dtype())) {
      case 8:
        return copy_bits<uint64_t>(args, space, stream);
      case 4:
        return copy_bits<uint32_t>(args, space, stream);
      case 2:
        return copy_bits<uint16_t>(args, space, stream);
      default:
        return copy_bits<uint8_t>(args, space, stream);
    }
  }
  if (is_short(args.x.dtype()) && is_short(args.y.dtype())) {
    return dispatch_device_float("copy", args.x.dtype(), [&]<class From>() {
      dispatch_device_float("copy", args.y.dtype(), [&]<class To>() {
        launch_map<To, From>(Identity{}, std::array<View, 1>{args.y},
                             std::array<ConstView, 1>{args.x}, stream);
      });
    });
  }
  dispatch_any(args.x.dtype(), [&]<class From>() {
    dispatch_any(args.y.dtype(), [&]<class To>() {
      if constexpr (is_float(kDTypeOf<To>) || !is_float(kDTypeOf<From>)) {
        launch(convert_kernel<To, From>, blocks_for(args.x.numel()), dim3(kMapThreads), 0, stream,
               space, args.y.data_as<To>(), args.x.data_as<From>());
      }
    });
  });
}

}  // namespace zinc::kernels::cuda
