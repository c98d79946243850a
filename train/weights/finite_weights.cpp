#include "train/weights/finite_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/error.h"

namespace zinc::train {
namespace {

constexpr int kAtOnce = 1024;

// Whether one of kAtOnce values is NaN or infinite. Compares them as integers, without a branch for
// each.
template <class T>
bool has_bad(const T* data) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits kExponent = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  Bits bad = 0;
  for (int i = 0; i < kAtOnce; ++i) {
    bad |= static_cast<Bits>((std::bit_cast<Bits>(data[i]) & kExponent) == kExponent);
  }
  return bad != 0;
}

// The index of the first NaN or infinity; n where there is none.
template <class T>
int64_t first_bad(const T* data, int64_t n) {
  int64_t begin = 0;
  while (begin + kAtOnce <= n && !has_bad(data + begin)) begin += kAtOnce;
  return std::find_if(data + begin, data + n, [](T v) { return !std::isfinite(v); }) - data;
}

}  // namespace

void require_finite(const zero::OwnPiece& piece, const std::string& saved) {
  const ConstView& values = piece.values;
  const int64_t at = values.dtype() == DType::f64
                         ? first_bad(values.data_as<double>(), values.numel())
                         : first_bad(values.data_as<float>(), values.numel());
  if (at == values.numel()) return;
  throw NumericsError(str(saved, ": weight ", piece.begin + at, " of ", piece.name,
                          " is not finite: the weights are damaged and not saved"));
}

}  // namespace zinc::train
