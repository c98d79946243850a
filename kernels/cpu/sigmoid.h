// kernels/cpu/sigmoid.h: the f64 path's sigmoid; vectors have their own.
#pragma once

#include <cmath>

namespace zinc::kernels::cpu {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace zinc::kernels::cpu
