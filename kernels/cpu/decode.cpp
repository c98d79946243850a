#include "kernels/decode.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/block_codes.h"
#include "core/parallel.h"

namespace zinc::kernels::cpu {
namespace {

float number_at(const uint8_t* bytes) {
  float value = 0.0f;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

template <class T>
void decode_nf4(const uint8_t* x, int64_t n, T* y) {
  const float nested = number_at(x + kNf4NestedAt), offset = number_at(x + kNf4OffsetAt);
  for (int64_t begin = 0; begin < n; begin += 64) {
    const float absmax = kDynamicMap[x[kNf4AbsmaxAt + begin / 64]] * nested + offset;
    std::array<T, 16> values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(kNf4Values[i] * absmax);
    const int64_t end = std::min(begin + 64, n);
    int64_t i = begin;
    for (; i + 1 < end; i += 2) {
      const uint8_t pair = x[i / 2];
      y[i] = values[pair >> 4];
      y[i + 1] = values[pair & 15];
    }
    if (i < end) y[i] = values[x[i / 2] >> 4];
  }
}

template <class T>
void decode_bytes(const std::array<float, 256>& values, const uint8_t* x, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float absmax = number_at(x + kInt8AbsmaxAt + i / 256 * 4);
    y[i] = static_cast<T>(values[x[i]] * absmax);
  }
}

}  // namespace

void decode(const Decode& args) {
  const int64_t n = args.y.numel(), bytes = chunk_bytes(args.format);
  const uint8_t* x = args.x.data_as<uint8_t>();
  dispatch_float(args.y.dtype(), [&]<class T>() {
    T* y = args.y.data_as<T>();
    parallel_for((n + kFormatChunk - 1) / kFormatChunk, 16, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t at = chunk * kFormatChunk, there = std::min(kFormatChunk, n - at);
        if (args.format == BlockFormat::nf4) {
          decode_nf4(x + chunk * bytes, there, y + at);
        } else {
          decode_bytes(byte_values(args.format), x + chunk * bytes, there, y + at);
        }
      }
    });
  });
}

}  // namespace zinc::kernels::cpu
