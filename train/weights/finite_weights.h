// train/weights/finite_weights.h: keeps damaged weights from replacing saved ones.
#pragma once

#include <string>

#include "zero/values/own_values.h"

namespace zinc::train {

// Throws NumericsError if a value is NaN or infinite. The message names the weight and `saved`, the
// thing that was to be saved.
void require_finite(const zero::OwnPiece& piece, const std::string& saved);

}  // namespace zinc::train
