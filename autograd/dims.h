// autograd/dims.h: the dimensions that a function works on.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "core/shape.h"

namespace zinc::autograd {

// One dimension or a list: sum(x, -1), sum(x, {0, 2}). Negative ones count from the end.
class Dims {
 public:
  Dims(int dim) : dims_{dim} {}  // NOLINT(google-explicit-constructor)
  Dims(std::initializer_list<int> dims) : dims_(dims) {}
  explicit Dims(std::vector<int> dims) : dims_(std::move(dims)) {}

  // The dimensions from 0 to rank - 1, in rising order. Throws InvalidArgument, in a message that
  // begins with `op`, for a dimension that `shape` does not have or that is named twice.
  std::vector<int> of(std::string_view op, const Shape& shape) const;

 private:
  std::vector<int> dims_;
};

// The same for one dimension. `rank`: the rank of `shape`, or one more for a new dimension.
int checked_dim(std::string_view op, int dim, const Shape& shape, int rank);
inline int checked_dim(std::string_view op, int dim, const Shape& shape) {
  return checked_dim(op, dim, shape, shape.rank());
}

}  // namespace zinc::autograd
