// Signs and their scales: a block of 128 threads a chunk of 1024 elements, 8 elements and one byte
// of bits a thread. Traffic: x, the residual, y and the addend; the bits are a 32nd of each.
#include "kernels/signs.h"

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/shared.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kEach = 8;  // elements of a thread
constexpr int kThreads = static_cast<int>(kSignChunk) / kEach;
constexpr int64_t kMostBlocks = 132 * 16;
using Eight = Pack<float, kEach>;

unsigned blocks_for(int64_t chunks) { return static_cast<unsigned>(std::min(kMostBlocks, chunks)); }

// A thread a run.
__global__ void __launch_bounds__(kThreads)
    scales_kernel(const double* sums, const int32_t* counts, const int64_t* runs, int64_t num_runs,
                  float* scales) {
  const int64_t run = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (run >= num_runs) return;
  const int64_t begin = runs != nullptr ? runs[run] : run;
  const int64_t end = runs != nullptr ? runs[run + 1] : run + 1;
  double sum = 0.0;
  int64_t count = 0;
  for (int64_t k = begin; k < end; ++k) {
    sum += sums[k];
    count += counts[k];
  }
  const double scale = count > 0 ? sqrt(sum / static_cast<double>(count)) : 0.0;
  for (int64_t k = begin; k < end; ++k) scales[k] = static_cast<float>(scale);
}

__global__ void __launch_bounds__(kThreads)
    encode_kernel(const float* x, const float* scales, const int32_t* counts, int64_t chunks,
                  uint8_t* bits, float* residual) {
  const int first = static_cast<int>(threadIdx.x) * kEach;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t at = chunk * kSignChunk + first;
    const float scale = scales[chunk];
    const int there = counts[chunk] - first;
    const Eight values = *reinterpret_cast<const Eight*>(x + at);
    Eight rest;
    unsigned byte = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool is_positive = i < there && values.at[i] >= 0.0f;
      if (is_positive) byte |= 1u << i;
      rest.at[i] = i < there ? values.at[i] - (is_positive ? scale : -scale) : 0.0f;
    }
    bits[at / 8] = static_cast<uint8_t>(byte);
    if (residual != nullptr) *reinterpret_cast<Eight*>(residual + at) = rest;
  }
}

struct Terms {
  const uint8_t* bits;  // null: all values are 0
  const float* scales;
  const float* addend;  // may be null
  float factor, keep;
};

// The sum of squares is that of finite_norm: 16 lanes, then a tree of lanes.
__global__ void __launch_bounds__(kThreads)
    send_kernel(const float* x, Terms terms, const int32_t* counts, int64_t chunks, float* residual,
                uint8_t* bits, float* scales) {
  constexpr int kLanes = 16;
  ZINC_SHARED(float, values, [kSignChunk]);
  ZINC_SHARED(double, lanes, [kLanes]);
  ZINC_SHARED(float, scale_of, [1]);
  const int t = static_cast<int>(threadIdx.x), first = t * kEach;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t at = chunk * kSignChunk + first;
    const int count = counts[chunk], there = count - first;
    const float last = terms.bits != nullptr ? terms.scales[chunk] * terms.factor : 0.0f;
    const unsigned last_byte = terms.bits != nullptr ? terms.bits[at / 8] : 0u;
    const Eight given = *reinterpret_cast<const Eight*>(x + at);
    const Eight before = *reinterpret_cast<const Eight*>(residual + at);
    Eight mine;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float value = 0.0f;
      if (terms.bits != nullptr) value = (last_byte >> i & 1u) != 0u ? last : -last;
      value = fmaf(terms.keep, given.at[i], value);
      value = value + before.at[i];
      mine.at[i] = i < there ? value : 0.0f;
      values[first + i] = mine.at[i];
    }
    __syncthreads();
    if (t < kLanes) {
      double sum = 0.0;
      for (int i = t; i < static_cast<int>(kSignChunk); i += kLanes) {
        sum += double{values[i]} * double{values[i]};
      }
      lanes[t] = sum;
    }
    __syncthreads();
    if (t == 0) {
      for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
      }
      const double scale = count > 0 ? sqrt(lanes[0] / static_cast<double>(count)) : 0.0;
      scale_of[0] = static_cast<float>(scale);
      scales[chunk] = scale_of[0];
    }
    __syncthreads();
    const float scale = scale_of[0];
    unsigned byte = 0;
    Eight rest;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool is_positive = i < there && mine.at[i] >= 0.0f;
      if (is_positive) byte |= 1u << i;
      rest.at[i] = i < there ? mine.at[i] - (is_positive ? scale : -scale) : 0.0f;
    }
    bits[at / 8] = static_cast<uint8_t>(byte);
    *reinterpret_cast<Eight*>(residual + at) = rest;
  }
}

__global__ void __launch_bounds__(kThreads)
    decode_kernel(Terms terms, const int32_t* counts, int64_t chunks, float* y) {
  const int first = static_cast<int>(threadIdx.x) * kEach;
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t at = chunk * kSignChunk + first;
    const float scale = terms.bits != nullptr ? terms.scales[chunk] * terms.factor : 0.0f;
    const unsigned byte = terms.bits != nullptr ? terms.bits[at / 8] : 0u;
    const int there = counts[chunk] - first;
    Eight before{}, addend{}, values;
    if (terms.keep != 0.0f) before = *reinterpret_cast<const Eight*>(y + at);
    if (terms.addend != nullptr) addend = *reinterpret_cast<const Eight*>(terms.addend + at);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float value = 0.0f;
      if (terms.bits != nullptr) value = (byte >> i & 1u) != 0u ? scale : -scale;
      if (terms.keep != 0.0f) value = fmaf(terms.keep, before.at[i], value);
      if (terms.addend != nullptr) value = value + addend.at[i];
      values.at[i] = i < there ? value : 0.0f;
    }
    *reinterpret_cast<Eight*>(y + at) = values;
  }
}

}  // namespace

void sign_scales(const SignScales& args, StreamRef stream) {
  const int64_t runs = args.runs ? args.runs.numel() - 1 : args.scales.numel();
  if (runs <= 0) return;
  launch(scales_kernel, dim3(static_cast<unsigned>((runs + kThreads - 1) / kThreads)),
         dim3(kThreads), 0, stream, args.sums.data_as<double>(), args.counts.data_as<int32_t>(),
         args.runs ? args.runs.data_as<int64_t>() : nullptr, runs, args.scales.data_as<float>());
}

void encode_signs(const EncodeSigns& args, StreamRef stream) {
  const int64_t chunks = args.scales.numel();
  launch(encode_kernel, dim3(blocks_for(chunks)), dim3(kThreads), 0, stream,
         args.x.data_as<float>(), args.scales.data_as<float>(), args.counts.data_as<int32_t>(),
         chunks, args.bits.data_as<uint8_t>(),
         args.residual ? args.residual.data_as<float>() : nullptr);
}

void send_signs(const SendSigns& args, StreamRef stream) {
  const Terms terms{.bits = args.last_bits ? args.last_bits.data_as<uint8_t>() : nullptr,
                    .scales = args.last_bits ? args.last_scales.data_as<float>() : nullptr,
                    .addend = nullptr,
                    .factor = static_cast<float>(args.last_factor),
                    .keep = static_cast<float>(args.share)};
  const int64_t chunks = args.counts.numel();
  launch(send_kernel, dim3(blocks_for(chunks)), dim3(kThreads), 0, stream, args.x.data_as<float>(),
         terms, args.counts.data_as<int32_t>(), chunks, args.residual.data_as<float>(),
         args.bits.data_as<uint8_t>(), args.scales.data_as<float>());
}

void decode_signs(const DecodeSigns& args, StreamRef stream) {
  const Terms terms{.bits = args.bits ? args.bits.data_as<uint8_t>() : nullptr,
                    .scales = args.bits ? args.scales.data_as<float>() : nullptr,
                    .addend = args.addend ? args.addend.data_as<float>() : nullptr,
                    .factor = static_cast<float>(args.factor),
                    .keep = static_cast<float>(args.keep)};
  const int64_t chunks = args.counts.numel();
  launch(decode_kernel, dim3(blocks_for(chunks)), dim3(kThreads), 0, stream, terms,
         args.counts.data_as<int32_t>(), chunks, args.y.data_as<float>());
}

}  // namespace zinc::kernels::cuda
