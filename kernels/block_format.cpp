#include "kernels/block_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "core/error.h"
#include "core/parallel.h"
#include "kernels/block_format_layout.h"

namespace zinc::kernels {
namespace {

constexpr std::array<float, 16> kNf4{-1.0f,          -0.6961928010f, -0.5250730515f, -0.3949174881f,
                                     -0.2844413817f, -0.1847734302f, -0.0910500363f, 0.0f,
                                     0.0795802996f,  0.1609302014f,  0.2461123019f,  0.3379152417f,
                                     0.4407098293f,  0.5626170039f,  0.7229568362f,  1.0f};

// The upper half of the dynamic map: midpoints of 2^e equal parts of [0.1, 1], times 10^(e - 6),
// for e from 0 to 6, in f32 at each step; then 1.
// clang-format off
constexpr std::array<float, 128> kDynamicUpper{
    5.5000004e-07f, 3.2500002e-06f, 7.75e-06f, 2.1249998e-05f, 4.375e-05f, 6.625e-05f, 8.875e-05f,
    1.5625001e-04f, 2.6875004e-04f, 3.8125002e-04f, 4.9375003e-04f, 6.062501e-04f, 7.1875006e-04f,
    8.3125e-04f, 9.437501e-04f, 1.2812499e-03f, 1.84375e-03f, 2.40625e-03f, 2.96875e-03f,
    3.5312497e-03f, 4.09375e-03f, 4.6562497e-03f, 5.2187503e-03f, 5.78125e-03f, 6.34375e-03f,
    6.90625e-03f, 7.46875e-03f, 8.03125e-03f, 8.59375e-03f, 9.156249e-03f, 9.71875e-03f,
    1.140625e-02f, 1.421875e-02f, 1.703125e-02f, 1.9843752e-02f, 2.265625e-02f, 2.546875e-02f,
    2.8281251e-02f, 3.109375e-02f, 3.390625e-02f, 3.6718752e-02f, 3.953125e-02f, 4.2343747e-02f,
    4.515625e-02f, 4.796875e-02f, 5.078125e-02f, 5.359375e-02f, 5.640625e-02f, 5.9218753e-02f,
    6.203125e-02f, 6.484375e-02f, 6.7656256e-02f, 7.0468746e-02f, 7.328125e-02f, 7.609375e-02f,
    7.890625e-02f, 8.171876e-02f, 8.453125e-02f, 8.734375e-02f, 9.015625e-02f, 9.2968754e-02f,
    9.578126e-02f, 9.859375e-02f, 1.07031256e-01f, 1.2109375e-01f, 1.3515624e-01f, 1.4921875e-01f,
    1.6328125e-01f, 1.7734376e-01f, 1.9140625e-01f, 2.0546874e-01f, 2.1953125e-01f,
    2.3359375e-01f, 2.4765624e-01f, 2.6171875e-01f, 2.7578127e-01f, 2.8984374e-01f,
    3.0390626e-01f, 3.1796873e-01f, 3.3203125e-01f, 3.4609374e-01f, 3.6015624e-01f,
    3.7421876e-01f, 3.8828123e-01f, 4.0234375e-01f, 4.1640624e-01f, 4.3046874e-01f,
    4.4453126e-01f, 4.5859373e-01f, 4.7265625e-01f, 4.867187e-01f, 5.0078124e-01f, 5.148437e-01f,
    5.289062e-01f, 5.4296875e-01f, 5.570313e-01f, 5.710938e-01f, 5.8515626e-01f, 5.992187e-01f,
    6.1328125e-01f, 6.273438e-01f, 6.414063e-01f, 6.5546876e-01f, 6.695312e-01f, 6.8359375e-01f,
    6.976563e-01f, 7.117188e-01f, 7.2578126e-01f, 7.398437e-01f, 7.5390625e-01f, 7.679688e-01f,
    7.8203124e-01f, 7.9609376e-01f, 8.101562e-01f, 8.2421875e-01f, 8.382813e-01f, 8.5234374e-01f,
    8.6640626e-01f, 8.804687e-01f, 8.9453125e-01f, 9.085938e-01f, 9.2265624e-01f, 9.3671876e-01f,
    9.507812e-01f, 9.6484375e-01f, 9.789063e-01f, 9.9296874e-01f, 1.e+00f,};
// clang-format on

// The other half are their negatives but for 1, and 0.
constexpr std::array<float, 256> make_dynamic_map() {
  std::array<float, 256> map{};
  for (size_t i = 0; i < 128; ++i) map[128 + i] = kDynamicUpper[i];
  for (size_t i = 0; i < 127; ++i) map[126 - i] = -kDynamicUpper[i];
  return map;
}
constexpr std::array<float, 256> kDynamic = make_dynamic_map();

template <size_t kCount>
constexpr std::array<float, kCount - 1> midpoints_of(const std::array<float, kCount>& code) {
  std::array<float, kCount - 1> midpoints{};
  for (size_t i = 0; i + 1 < kCount; ++i) midpoints[i] = (code[i] + code[i + 1]) / 2.0f;
  return midpoints;
}
constexpr auto kNf4Midpoints = midpoints_of(kNf4);
constexpr auto kDynamicMidpoints = midpoints_of(kDynamic);

int nf4_code(float value) {
  int code = 0;
  for (const float midpoint : kNf4Midpoints) code += value > midpoint ? 1 : 0;
  return code;
}

uint8_t dynamic_code(float value) {
  const auto* at = std::lower_bound(kDynamicMidpoints.begin(), kDynamicMidpoints.end(), value);
  return static_cast<uint8_t>(at - kDynamicMidpoints.begin());
}

// Of a block of zeros, too.
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

}  // namespace

std::string_view name_of(BlockFormat format) { return format == BlockFormat::nf4 ? "nf4" : "int8"; }

std::optional<BlockFormat> block_format_named(std::string_view name) {
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::int8}) {
    if (name == name_of(format)) return format;
  }
  return std::nullopt;
}

int64_t block_numel(BlockFormat format) { return format == BlockFormat::nf4 ? 64 : 256; }
int64_t chunk_bytes(BlockFormat format) {
  return format == BlockFormat::nf4 ? kNf4ChunkBytes : kInt8ChunkBytes;
}
int64_t encoded_bytes(BlockFormat format, int64_t n) {
  return (n + kFormatChunk - 1) / kFormatChunk * chunk_bytes(format);
}

std::span<const float, 16> nf4_values() { return kNf4; }
std::span<const float, 256> dynamic_map() { return kDynamic; }

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

void encode(const Encode& args) {
  const int64_t n = args.x.numel(), chunks = (n + kFormatChunk - 1) / kFormatChunk;
  const int64_t first = args.begin / kFormatChunk, bytes = chunk_bytes(args.format);
  require(args.x.is_contiguous() && args.begin % kFormatChunk == 0 && args.y.dtype() == DType::u8 &&
              args.y.is_contiguous() && args.y.numel() == chunks * bytes,
          "encode: ", n, " elements from ", args.begin, " on as ", name_of(args.format), " to ",
          args.y.shape());
  const bool is_nf4 = args.format == BlockFormat::nf4;
  constexpr int64_t kTogether = kNestedNumel / kFormatChunk;
  require(!is_nf4 || (args.nested != nullptr &&
                      (first + chunks - 1) / kTogether < std::ssize(args.nested->absmax)),
          "encode: nf4 needs what all chunks of the weight have in common");
  auto* y = static_cast<std::byte*>(args.y.data());
  dispatch_float(args.x.dtype(), [&]<class T>() {
    parallel_for(chunks, kTogether, [&](int64_t begin, int64_t end) {
      std::array<float, kFormatChunk> values{};
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        read<T>(args.x, chunk * kFormatChunk, kFormatChunk, values.data());
        if (is_nf4) {
          const auto nested = static_cast<size_t>((first + chunk) / kTogether);
          encode_nf4(values.data(), args.nested->absmax[nested], args.nested->offset,
                     y + chunk * bytes);
        } else {
          encode_int8(values.data(), y + chunk * bytes);
        }
      }
    });
  });
}

}  // namespace zinc::kernels
