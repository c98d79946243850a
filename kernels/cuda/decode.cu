// y = code[x] * absmax of its block: a block of threads a chunk, 8 elements a thread. The code lies
// in shared memory. Traffic: x and y.
#include "kernels/decode.h"

#include <algorithm>

#include "core/block_codes.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kEach = 8;  // elements of a thread
constexpr int kThreads = static_cast<int>(kFormatChunk) / kEach;
constexpr int64_t kMostBlocks = 132 * 16;

struct Codes {
  float bytes[256];
  float nf4[16];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const uint8_t* x, bool is_nf4, int64_t chunk_bytes, int64_t n, T* y, bool aligned,
                  Codes codes) {
  ZINC_SHARED(float, code, [256]);
  ZINC_SHARED(float, small, [16]);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < 256; i += kThreads) code[i] = codes.bytes[i];
  if (t < 16) small[t] = codes.nf4[t];
  __syncthreads();
  const int64_t chunks = (n + kFormatChunk - 1) / kFormatChunk;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const uint8_t* from = x + chunk * chunk_bytes;
    Pack<T, kEach> values;
    if (is_nf4) {
      const auto pairs = *reinterpret_cast<const uint32_t*>(from + t * (kEach / 2));
      const float nested = *reinterpret_cast<const float*>(from + kNf4NestedAt);
      const float offset = *reinterpret_cast<const float*>(from + kNf4OffsetAt);
      const float absmax = code[from[kNf4AbsmaxAt + t * kEach / 64]] * nested + offset;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const uint32_t place = pairs >> (i / 2 * 8 + (i % 2 == 0 ? 4 : 0)) & 15u;
        values.at[i] = static_cast<T>(small[place] * absmax);
      }
    } else {
      const auto places = *reinterpret_cast<const uint64_t*>(from + t * kEach);
      const float absmax =
          *reinterpret_cast<const float*>(from + kInt8AbsmaxAt + t * kEach / 256 * 4);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        values.at[i] = static_cast<T>(code[places >> (8 * i) & 255u] * absmax);
      }
    }
    store_part(y, chunk * kFormatChunk + t * kEach, n, aligned, values);
  }
}

}  // namespace

void decode(const Decode& args, StreamRef stream) {
  Codes codes{};
  std::ranges::copy(byte_values(args.format), codes.bytes);
  std::ranges::copy(kNf4Values, codes.nf4);
  const int64_t n = args.y.numel();
  const int64_t blocks = std::min(kMostBlocks, (n + kFormatChunk - 1) / kFormatChunk);
  dispatch_device_float("decode", args.y.dtype(), [&]<class T>() {
    const bool aligned = reinterpret_cast<uintptr_t>(args.y.data()) % sizeof(Pack<T, kEach>) == 0;
    launch(decode_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream,
           args.x.data_as<uint8_t>(), args.format == BlockFormat::nf4, chunk_bytes(args.format), n,
           args.y.data_as<T>(), aligned, codes);
  });
}

}  // namespace zinc::kernels::cuda
