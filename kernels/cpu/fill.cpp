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

}  // namespace

void fill(const Fill& args) {
  switch (args.y.dtype()) {
    case DType::f64:
      return run(args.y, args.value);
    case DType::f32:
      return run(args.y, static_cast<float>(args.value));
    case DType::bf16:
      return run(args.y, bf16(static_cast<float>(args.value)).bits);
    case DType::f16:
      return run(args.y, f16(static_cast<float>(args.value)).bits);
    case DType::i64:
      return run(args.y, static_cast<int64_t>(args.value));
    case DType::i32:
      return run(args.y, static_cast<int32_t>(args.value));
    case DType::u8:
      return run(args.y, static_cast<uint8_t>(args.value));
  }
}

}  // namespace zinc::kernels::cpu
