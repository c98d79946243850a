#include <limits>

#include "zero/engine.h"

namespace zinc::zero {

std::string_view name_of(StepOutcome outcome) {
  switch (outcome) {
    case StepOutcome::accumulated:
      return "accumulated";
    case StepOutcome::applied:
      return "applied";
    case StepOutcome::skipped_overflow:
      return "skipped_overflow";
  }
  return "?";
}

double Loss::mean() const {
  if (num_targets == 0) return std::numeric_limits<double>::quiet_NaN();
  return sum.item() / static_cast<double>(num_targets);
}

double Evaluation::mean() const {
  if (num_targets == 0) return std::numeric_limits<double>::quiet_NaN();
  return loss_sum / static_cast<double>(num_targets);
}

}  // namespace zinc::zero
