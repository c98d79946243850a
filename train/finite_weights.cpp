#include "train/finite_weights.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace zinc::train {

void require_finite(const zero::OwnPiece& piece, const std::string& saved) {
  const ConstView& values = piece.values;
  const auto first_bad = [&]<class T>(const T* data) {
    const int64_t n = values.numel();
    return std::find_if(data, data + n, [](T value) { return !std::isfinite(value); }) - data;
  };
  const int64_t at = values.dtype() == DType::f64 ? first_bad(values.data_as<double>())
                                                  : first_bad(values.data_as<float>());
  if (at == values.numel()) return;
  throw NumericsError(concat(saved, ": weight ", piece.begin + at, " of ", piece.name,
                             " is not finite: the weights are damaged and not saved"));
}

}  // namespace zinc::train
