#include "optim/whole_rule.h"

#include "core/error.h"

namespace zinc::optim {

std::string_view WholeRule::vector_name(int i) const {
  throw InvalidArgument(str("the update rule has no vector ", i));
}

std::optional<Shape> WholeRule::vector_shape(const Shape&, int) const { return std::nullopt; }

void WholeRule::transform(const WholeParameter&, const HyperParameters&, StreamRef) const {
  throw InvalidArgument(
      "an update rule with transforms() has no transform(); add it, or return false there");
}

void WholeRule::rates(const MeasuredParameter&, const HyperParameters&, StreamRef) const {
  throw InvalidArgument(
      "an update rule with num_rates() has no rates(); add it, or return 0 there");
}

int64_t WholeRule::flops(int64_t rows, int64_t columns) const { return rows * columns; }

}  // namespace zinc::optim
