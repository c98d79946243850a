// tests/autograd/gradcheck.h: gradients against central differences, in f64.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::testing {

struct GradcheckOperand {
  Shape shape;
  double low = -1.0;  // values are uniform in [low, high)
  double high = 1.0;
  // Keeps values at least this far from 0 on either side: for functions with a kink there.
  double gap = 0.0;
  bool is_weight = false;  // the op takes a Weight here: also checked as a Parameter
};

struct GradcheckRow {
  std::string header;  // the op's file name in autograd/ops, without ending
  std::string name;    // the part of the op that the row checks
  std::vector<GradcheckOperand> operands;
  // Computes from operands in the order of `operands`; results are summed with random weights.
  std::function<std::vector<Tensor>(std::span<const autograd::Weight> operands)> function;
  // Error of central differences: about step^2 |f'''| / 6 + eps |f| / step; with values of order 1
  // both terms are below 1e-9 at 1e-5.
  double step = 1e-5;
};

void PrintTo(const GradcheckRow& row, std::ostream* out);

inline constexpr double kGradcheckTolerance = 1e-5;  // relative, L2 per operand

// Reports failures to GoogleTest: backward against differences, with tensor operands; then the same
// gradients bit by bit with Parameter operands, and twice their value after a second backward.
void check_gradients(const GradcheckRow& row);

}  // namespace zinc::testing
