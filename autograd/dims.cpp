#include "autograd/dims.h"

namespace zinc::autograd {

int checked_dim(std::string_view op, int dim, const Shape& shape, int rank) {
  require(dim >= -rank && dim < rank, op, ": no dimension ", dim, " in a tensor of shape ", shape);
  return dim < 0 ? dim + rank : dim;
}

std::vector<int> Dims::of(std::string_view op, const Shape& shape) const {
  std::vector<int> dims;
  for (const int dim : dims_) dims.push_back(checked_dim(op, dim, shape));
  std::sort(dims.begin(), dims.end());
  const auto twice = std::adjacent_find(dims.begin(), dims.end());
  require(twice == dims.end(), op,
          ": a dimension is named twice: ", twice == dims.end() ? 0 : *twice, " of shape ", shape);
  return dims;
}

}  // namespace zinc::autograd
