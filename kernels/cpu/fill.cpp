#include "kernels/fill.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

template <class T>
void run(const View& y, T value) {
  T* data = static_cast<T*>(y.data());
  if (!past_caches(y)) {
    parallel_elements(
        y.shape(), [&](const auto& at, int64_t n) { std::fill_n(data + at[0], n, value); }, y);
    return;
  }
  std::array<T, 2048> pattern;
  pattern.fill(value);
  constexpr auto kPattern = static_cast<int64_t>(pattern.size());
  parallel_elements(
      y.shape(),
      [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; i += kPattern) {
          const int64_t bytes = std::min(kPattern, n - i) * static_cast<int64_t>(sizeof(T));
          copy_bytes(data + at[0] + i, pattern.data(), bytes, true);
        }
        flush_past_caches();
      },
      y);
}

void fill_all(const View& y, double value) {
  const uint64_t bits = bits_of(value, y.dtype());
  switch (size_of(y.dtype())) {
    case 8:
      return run(y, bits);
    case 4:
      return run(y, static_cast<uint32_t>(bits));
    case 2:
      return run(y, static_cast<uint16_t>(bits));
    default:
      return run(y, static_cast<uint8_t>(bits));
  }
}

}  // namespace

void fill(const Fill& args) {
  if (args.pieces.empty()) return fill_all(args.y, args.value);
  for (const auto& [begin, count] : args.pieces) {
    fill_all(args.y.narrow(0, begin, count), args.value);
  }
}

}  // namespace zinc::kernels::cpu
