// element_update with states in 8 bits: Note [Bits of states in blocks]. A warp takes a block of
// 256 elements, 8 a thread, so that a block's scale is a maximum over a warp; four warps take a
// chunk. Codes are looked up in shared memory: Note [First code] in kernels/state_codes.h, whose
// tables each block of threads makes. Traffic of AdamW with bf16 gradient and model weights: the
// weights in and out, two states of 1.02 bytes in and out, 2 + 2 bytes besides: 16 bytes an
// element.
#include <algorithm>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/number.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/warp.h"
#include "kernels/element_update.h"
#include "kernels/state_codes.h"

namespace zinc::kernels::cuda {
namespace {

#include "kernels/update_rows-inl.h"

constexpr int kEach = 8;  // elements of a thread
constexpr int kThreads = static_cast<int>(kFormatChunk) / kEach;
static_assert(kEach * kWarp == kStateBlock);
constexpr int64_t kMostBlocks = 132 * 8;
constexpr int kMoments = 2;

struct BlockScalars {
  float values[kMaxUpdateScalars];
};

// From bytes to values, of both moments.
struct ByteValues {
  float of[kMoments][256];
};

template <class Gradient, class Model>
struct BlockOperands {
  int num_scalars;
  float* weights;
  const Gradient* gradient;
  uint8_t* states[kMoments];
  Model* model_weights;  // may be null
  const float* factor;   // may be null: 1
  const int32_t* skip;   // may be null: 0
  const float* values;   // may be null: the kernel's argument
};

struct RowScalars {
  const float* values;
  __device__ __forceinline__ Number<float> operator[](int i) const {
    return Number<float>(values[i]);
  }
  __device__ __forceinline__ bool has(int i) const { return values[i] != 0.0f; }
};

// make_magnitude_codes(), by all threads of a block.
template <BlockFormat kFormat>
__device__ __forceinline__ void make_midpoints(const float* values, float* midpoints) {
  constexpr int kCount = num_magnitudes(kFormat);
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += kThreads) {
    midpoints[i] =
        i + 1 < kCount ? (values[i] + values[i + 1]) / 2.0f : std::bit_cast<float>(0x7f800000u);
    if (kFormat == BlockFormat::unsigned8 && i == 0) midpoints[0] = 0.0f;
  }
}
__device__ __forceinline__ void find_first_codes(const float* midpoints, uint8_t* first) {
  for (uint32_t i = threadIdx.x; i < kNumUpperHalves; i += kThreads) {
    const auto smallest = std::bit_cast<float>((i + kLowestUpperHalf) << 16);
    uint32_t code = 0;  // midpoints below
#pragma unroll
    for (uint32_t step = 128; step > 0; step /= 2) {
      if (smallest > midpoints[code + step - 1]) code += step;
    }
    first[i] = i == 0 ? 0 : static_cast<uint8_t>(code);
  }
}

template <bool kSigned>
__device__ __forceinline__ uint32_t code_of(float quotient, const float* midpoints,
                                            const uint8_t* first) {
  const float magnitude = fabsf(quotient);
  const uint32_t upper = std::bit_cast<uint32_t>(magnitude) >> 16;
  int code = first[upper > kLowestUpperHalf ? upper - kLowestUpperHalf : 0];
  code += magnitude > midpoints[code] ? 1 : 0;
  if (quotient < 0.0f) code = kSigned ? -(code < 127 ? code : 127) : 0;
  return static_cast<uint32_t>(code) & 255u;
}

// Encodes the warp's block. `places`, `scale_at`: of this thread's codes, and the block's scale.
template <bool kSigned>
__device__ __forceinline__ void encode_block(const float (&values)[kEach], const float* midpoints,
                                             const uint8_t* first, uint8_t* places,
                                             uint8_t* scale_at) {
  uint32_t key = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) key = Max{}(key, scale_key(values[i]));
  const float scale = scale_of(warp_reduce(key, Max{}));
  uint64_t codes = 0;
  if (divides(scale)) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      codes |= uint64_t{code_of<kSigned>(values[i] / scale, midpoints, first)} << 8 * i;
    }
  }
  *reinterpret_cast<uint64_t*>(places) = codes;
  if (threadIdx.x % kWarp == 0) *reinterpret_cast<float*>(scale_at) = scale;
}

template <class Aligned, class Gradient, class Model>
__global__ void __launch_bounds__(kThreads)
    block_update_kernel(BlockOperands<Gradient, Model> at, int64_t n, BlockScalars scalars,
                        ByteValues bytes, Aligned aligned) {
  using N = Number<float>;
  if (at.skip != nullptr && *at.skip != 0) return;
  ZINC_SHARED(float, value_of, [kMoments][256]);
  ZINC_SHARED(float, midpoints, [kMoments][256]);
  ZINC_SHARED(uint8_t, first, [kMoments][kNumUpperHalves]);
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < 256; i += kThreads) {
    for (int j = 0; j < kMoments; ++j) value_of[j][i] = bytes.of[j][i];
  }
  __syncthreads();
  make_midpoints<BlockFormat::signed8>(value_of[0], midpoints[0]);
  make_midpoints<BlockFormat::unsigned8>(value_of[1], midpoints[1]);
  __syncthreads();
  for (int j = 0; j < kMoments; ++j) find_first_codes(midpoints[j], first[j]);
  __syncthreads();
  if (at.values != nullptr) {
    for (int i = 0; i < at.num_scalars; ++i) scalars.values[i] = at.values[i];
  }
  const RowScalars k{scalars.values};
  const float factor = at.factor != nullptr ? *at.factor : 1.0f;
  for (int64_t chunk = blockIdx.x; chunk < n / kFormatChunk; chunk += gridDim.x) {
    const int64_t begin = chunk * kFormatChunk + t * kEach;
    uint8_t* places[kMoments];
    uint8_t* scales[kMoments];
    float s[kMoments][kEach], w[kEach], g[kEach];
#pragma unroll
    for (int j = 0; j < kMoments; ++j) {
      uint8_t* const of_chunk = at.states[j] + chunk * kInt8ChunkBytes;
      places[j] = of_chunk + t * kEach;
      scales[j] = of_chunk + kInt8AbsmaxAt + t / kWarp * 4;
      const auto codes = *reinterpret_cast<const uint64_t*>(places[j]);
      const float scale = *reinterpret_cast<const float*>(scales[j]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) s[j][i] = value_of[j][codes >> 8 * i & 255u] * scale;
    }
    load_floats(at.weights, begin, n, aligned, w);
    load_floats(at.gradient, begin, n, aligned, g);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      N weight(w[i]);
      N state[kMoments] = {N(s[0][i]), N(s[1][i])};
      UpdateRow<UpdateRule::adamw>::step(weight, N(g[i] * factor), state, k);
      w[i] = weight.value;
#pragma unroll
      for (int j = 0; j < kMoments; ++j) s[j][i] = state[j].value;
    }
    store_floats(at.weights, begin, n, aligned, w);
    if (at.model_weights != nullptr) store_floats(at.model_weights, begin, n, aligned, w);
    encode_block<true>(s[0], midpoints[0], first[0], places[0], scales[0]);
    encode_block<false>(s[1], midpoints[1], first[1], places[1], scales[1]);
  }
}

template <class Gradient, class Model>
void run(const ElementUpdate& args, const BlockScalars& scalars, const ByteValues& bytes,
         bool aligned, StreamRef stream) {
  BlockOperands<Gradient, Model> operands{
      .num_scalars = num_scalars(args.rule),
      .weights = args.weights.data_as<float>(),
      .gradient = args.gradient.data_as<Gradient>(),
      .states = {args.states[0].data_as<uint8_t>(), args.states[1].data_as<uint8_t>()},
      .model_weights = args.model_weights ? args.model_weights.data_as<Model>() : nullptr,
      .factor = args.factor ? args.factor.data_as<float>() : nullptr,
      .skip = args.skip ? args.skip.data_as<int32_t>() : nullptr,
      .values = args.values ? args.values.data_as<float>() : nullptr};
  const int64_t n = args.weights.numel();
  const int64_t blocks = std::min(kMostBlocks, n / kFormatChunk);
  dispatch_whole_packs(n, kEach, aligned, [&]<class Aligned>(Aligned fits) {
    launch(block_update_kernel<Aligned, Gradient, Model>, dim3(static_cast<unsigned>(blocks)),
           dim3(kThreads), 0, stream, operands, n, scalars, bytes, fits);
  });
}

}  // namespace

void block_update(const ElementUpdate& args, StreamRef stream) {
  const char* const op = name_of(args.rule).data();
  BlockScalars scalars{};
  const UpdateScalars in_f64 = update_scalars(args.rule, args.constants, args.step);
  for (size_t i = 0; i < in_f64.size(); ++i) scalars.values[i] = static_cast<float>(in_f64[i]);
  ByteValues bytes{};
  const auto formats = state_formats(args.rule);
  for (size_t j = 0; j < kMoments; ++j) std::ranges::copy(byte_values(formats[j]), bytes.of[j]);
  bool aligned = true;
  for (const ConstView& view :
       {ConstView(args.weights), args.gradient, ConstView(args.model_weights)}) {
    aligned = aligned && is_aligned_for_packs(view, 0);
  }
  const DType model = args.model_weights ? args.model_weights.dtype() : DType::f32;
  dispatch_device_float(op, args.gradient.dtype(), [&]<class Gradient>() {
    dispatch_device_float(op, model, [&]<class Model>() {
      run<Gradient, Model>(args, scalars, bytes, aligned, stream);
    });
  });
}

}  // namespace zinc::kernels::cuda
