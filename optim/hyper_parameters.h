// optim/hyper_parameters.h: values that a schedule or the user may change between steps.
#pragma once

#include <array>

namespace zinc::optim {

// Numbers that a rule carries for a parameter group: Optimizer::carried().
inline constexpr int kMaxCarried = 2;
using Carried = std::array<double, kMaxCarried>;

// One set per parameter group. A rule ignores members that it does not know.
struct HyperParameters {
  double lr = 1e-3;
  double weight_decay = 0.0;
  double momentum = 0.0;  // SGD, Muon
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  Carried carried{};  // those of this update; for Optimizer::carried(), of the update before
};

}  // namespace zinc::optim
