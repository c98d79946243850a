// train/hub/builtin_families.h: the rows of the families that zinc has. Each lies in a file of its
// own, <family>_family.cpp.
#pragma once

#include <array>

#include "train/hub/family.h"

namespace zinc::train {

Family gpt2_family();
Family llama_family();

// In the order in which people read them.
inline constexpr std::array<Family (*)(), 2> kBuiltinFamilies = {gpt2_family, llama_family};

}  // namespace zinc::train
