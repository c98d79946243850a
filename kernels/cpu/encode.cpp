#include "kernels/encode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "core/block_codes.h"
#include "core/error.h"
#include "core/parallel.h"
#include "kernels/state_codes.h"

namespace zinc::kernels {
namespace {

template <size_t kCount>
constexpr std::array<float, kCount - 1> midpoints_of(const std::array<float, kCount>& code) {
  std::array<float, kCount - 1> midpoints{};
  for (size_t i = 0; i + 1 < kCount; ++i) midpoints[i] = (code[i] + code[i + 1]) / 2.0f;
  return midpoints;
}
constexpr auto kNf4Midpoints = midpoints_of(kNf4Values);
constexpr auto kDynamicMidpoints = midpoints_of(kDynamicMap);

int nf4_code(float value) {
  int code = 0;
  for (const float midpoint : kNf4Midpoints) code += value > midpoint ? 1 : 0;
  return code;
}

uint8_t dynamic_code(float value) {
  const auto* at = std::lower_bound(kDynamicMidpoints.begin(), kDynamicMidpoints.end(), value);
  return static_cast<uint8_t>(at - kDynamicMidpoints.begin());
}

// Finite for a block of zeros, too.
float reciprocal_of(float absmax) { return 1.0f / std::max(absmax, 1e-38f); }
float scaled(float value, float reciprocal) { return std::clamp(value * reciprocal, -1.0f, 1.0f); }

float absmax_of(const float* x, int64_t n) {
  float absmax = 0.0f;
  for (int64_t i = 0; i < n; ++i) absmax = std::max(absmax, std::fabs(x[i]));
  return absmax;
}

// Elements [begin, begin + n) of x, and zeros behind its end.
template <class T>
void read(const ConstView& x, int64_t begin, int64_t n, float* values) {
  const T* from = x.data_as<T>() + begin;
  const int64_t there = std::min(n, x.numel() - begin);
  for (int64_t i = 0; i < there; ++i) values[i] = static_cast<float>(from[i]);
  std::fill(values + there, values + n, 0.0f);
}

void encode_nf4(const float* values, float nested_absmax, float offset, std::byte* y) {
  auto* codes = reinterpret_cast<uint8_t*>(y);
  const float nested = reciprocal_of(nested_absmax);
  for (int64_t block = 0; block < kFormatChunk / 64; ++block) {
    const float* from = values + block * 64;
    const float absmax = absmax_of(from, 64), reciprocal = reciprocal_of(absmax);
    for (int64_t i = 0; i < 64; i += 2) {
      const int first = nf4_code(scaled(from[i], reciprocal));
      const int second = nf4_code(scaled(from[i + 1], reciprocal));
      codes[block * 32 + i / 2] = static_cast<uint8_t>(first << 4 | second);
    }
    codes[kNf4AbsmaxAt + block] = dynamic_code(scaled(absmax - offset, nested));
  }
  std::memcpy(y + kNf4NestedAt, &nested_absmax, sizeof(float));
  std::memcpy(y + kNf4OffsetAt, &offset, sizeof(float));
}

void encode_int8(const float* values, std::byte* y) {
  auto* codes = reinterpret_cast<uint8_t*>(y);
  for (int64_t block = 0; block < kFormatChunk / 256; ++block) {
    const float* from = values + block * 256;
    const float absmax = absmax_of(from, 256), reciprocal = reciprocal_of(absmax);
    for (int64_t i = 0; i < 256; ++i) {
      codes[block * 256 + i] = dynamic_code(scaled(from[i], reciprocal));
    }
    std::memcpy(y + kInt8AbsmaxAt + block * int64_t{sizeof(float)}, &absmax, sizeof(float));
  }
}

uint8_t state_code(BlockFormat format, float quotient) {
  const MagnitudeCodes& codes = magnitude_codes(format);
  const bool is_negative = quotient < 0.0f;
  if (is_negative && format == BlockFormat::unsigned8) return 0;
  const uint32_t upper = std::bit_cast<uint32_t>(std::fabs(quotient)) >> 16;
  const int32_t first = codes.first[std::max(upper, kLowestUpperHalf) - kLowestUpperHalf];
  const bool is_above = std::fabs(quotient) > codes.midpoints[static_cast<size_t>(first)];
  const int32_t code = first + (is_above ? 1 : 0);
  return static_cast<uint8_t>(is_negative ? -std::min(code, 127) : code);
}

void encode_states(BlockFormat format, const float* values, std::byte* y) {
  auto* codes = reinterpret_cast<uint8_t*>(y);
  for (int64_t block = 0; block < kBlocksPerChunk; ++block) {
    const float* from = values + block * kStateBlock;
    uint32_t largest = 0;
    for (int64_t i = 0; i < kStateBlock; ++i) largest = std::max(largest, scale_key(from[i]));
    const float scale = scale_of(largest);
    for (int64_t i = 0; i < kStateBlock; ++i) {
      codes[block * kStateBlock + i] = divides(scale) ? state_code(format, from[i] / scale) : 0;
    }
    std::memcpy(y + kInt8AbsmaxAt + block * int64_t{sizeof(float)}, &scale, sizeof(float));
  }
}

}  // namespace

bool block_absmax(BlockFormat format, const ConstView& x, std::span<float> absmax) {
  const int64_t size = block_numel(format);
  const auto blocks = static_cast<int64_t>(absmax.size());
  require(x.is_contiguous() && blocks == (x.numel() + size - 1) / size, "block_absmax: ", blocks,
          " blocks of ", x.numel(), " elements");
  dispatch_float(x.dtype(), [&]<class T>() {
    parallel_for(blocks, 256, [&](int64_t begin, int64_t end) {
      std::array<float, 256> values{};
      for (int64_t block = begin; block < end; ++block) {
        read<T>(x, block * size, size, values.data());
        float poison = 0.0f;  // NaN where a value is no number
        for (int64_t i = 0; i < size; ++i) poison += values[static_cast<size_t>(i)] * 0.0f;
        absmax[static_cast<size_t>(block)] = poison + absmax_of(values.data(), size);
      }
    });
  });
  return std::ranges::all_of(absmax, [](float value) { return std::isfinite(value); });
}

NestedAbsmax nest(std::span<const float> absmax) {
  constexpr size_t kBlock = 256;
  double sum = 0.0;
  for (const float value : absmax) sum += double{value};
  NestedAbsmax nested;
  if (absmax.empty()) return nested;
  nested.offset = static_cast<float>(sum / static_cast<double>(absmax.size()));
  for (size_t begin = 0; begin < absmax.size(); begin += kBlock) {
    float most = 0.0f;
    for (const float value : absmax.subspan(begin, std::min(kBlock, absmax.size() - begin))) {
      most = std::max(most, std::fabs(value - nested.offset));
    }
    nested.absmax.push_back(most);
  }
  return nested;
}

namespace cpu {

void encode(const Encode& args) {
  const int64_t chunks = (args.x.numel() + kFormatChunk - 1) / kFormatChunk;
  const int64_t first = args.begin / kFormatChunk, bytes = chunk_bytes(args.format);
  constexpr int64_t kTogether = kNestedNumel / kFormatChunk;
  auto* y = static_cast<std::byte*>(args.y.data());
  dispatch_float(args.x.dtype(), [&]<class T>() {
    parallel_for(chunks, kTogether, [&](int64_t begin, int64_t end) {
      std::array<float, kFormatChunk> values{};
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        read<T>(args.x, chunk * kFormatChunk, kFormatChunk, values.data());
        if (args.format == BlockFormat::nf4) {
          const auto nested = static_cast<size_t>((first + chunk) / kTogether);
          encode_nf4(values.data(), args.nested->absmax[nested], args.nested->offset,
                     y + chunk * bytes);
        } else if (args.format == BlockFormat::int8) {
          encode_int8(values.data(), y + chunk * bytes);
        } else {
          encode_states(args.format, values.data(), y + chunk * bytes);
        }
      }
    });
  });
}

}  // namespace cpu
}  // namespace zinc::kernels
