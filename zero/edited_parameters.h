// zero/edited_parameters.h: what a client's change of parameters may leave.
#pragma once

#include <string>
#include <vector>

#include "zero/engine.h"

namespace zinc::zero {

// InvalidArgument unless `values` has exactly these names, each with contiguous values.
void check_edited(const std::vector<std::string>& names, const Engine::EditedParameters& values);

}  // namespace zinc::zero
