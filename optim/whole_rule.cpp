#include "optim/whole_rule.h"

#include "core/error.h"

namespace zinc::optim {

std::string_view WholeRule::vector_name(int i) const {
  throw InvalidArgument(str("the update rule has no vector ", i));
}

std::optional<Shape> WholeRule::vector_shape(const Shape&, int) const { return std::nullopt; }

void WholeRule::transform(const WholeParameter&, const HyperParameters&, StreamRef) const {
  bug_check(false, "an update rule that transforms() has a transform()");
}

int64_t WholeRule::flops(int64_t rows, int64_t columns) const { return rows * columns; }

}  // namespace zinc::optim
