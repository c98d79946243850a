// train/finite_weights.h: damaged weights take no saved one's place.
#pragma once

#include <string>

#include "zero/own_values.h"

namespace zinc::train {

// NumericsError where a value is NaN or infinite; names the weight, and what was to be saved.
void require_finite(const zero::OwnPiece& piece, const std::string& saved);

}  // namespace zinc::train
