#include "kernels/fp8_encode.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "core/float16.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void fp8_encode_lanes(const Fp8Encode& args, int scale_exponent);

namespace {

// Magnitudes of bf16 are in the order of their bits; a NaN is above infinity.
float largest_magnitude(const ConstView& x) {
  const auto* bits = reinterpret_cast<const int16_t*>(x.data_as<bf16>());
  const RowWalk<1> walk(x.shape(), {x.strides()});
  std::atomic<int> largest{0};
  parallel_for(walk.total(), kElementGrain, [&](int64_t begin, int64_t end) {
    int16_t mine = 0;
    walk.run(begin, end, [&](const std::array<int64_t, 1>& at, int64_t n) {
      const int16_t* from = bits + at[0];
#pragma omp simd reduction(max : mine)
      for (int64_t i = 0; i < n; ++i) {
        mine = std::max(mine, static_cast<int16_t>(from[i] & 0x7fff));
      }
    });
    int seen = largest;
    while (seen < mine && !largest.compare_exchange_weak(seen, mine)) {
    }
  });
  return std::bit_cast<float>(static_cast<uint32_t>(largest.load()) << 16);
}

}  // namespace

void fp8_encode(const Fp8Encode& args) {
  auto* const scale = args.scale.data_as<float>();
  if (!args.is_known) {
    scale[0] = args.x.numel() == 0 ? 0.0f : largest_magnitude(args.x);
    scale[1] = power_of_two(-fp8_scale_exponent(args.format, scale[0]));
  }
  if (args.x.numel() == 0 || (!args.codes && !args.transposed)) return;
  fp8_encode_lanes(args, fp8_scale_exponent(args.format, scale[0]));
}

}  // namespace zinc::kernels::cpu
