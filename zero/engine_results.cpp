#include <array>
#include <limits>

#include "zero/engine.h"
#include "zero/evaluation_scope.h"
#include "zero/gather_values.h"

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

std::vector<Evaluation> gather_evaluations(comm::World& world, const Evaluation& part) {
  const std::array<double, 2> values{part.loss_sum, static_cast<double>(part.num_targets)};
  const std::vector<double> all = gather_values(world, values);
  std::vector<Evaluation> parts;
  for (size_t i = 0; i < all.size(); i += 2) {
    parts.push_back({.loss_sum = all[i], .num_targets = static_cast<int64_t>(all[i + 1])});
  }
  return parts;
}

}  // namespace zinc::zero
