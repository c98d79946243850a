#include "autograd/ops/gather.h"

#include <utility>

#include "autograd/backward_pass.h"
#include "autograd/dims.h"
#include "autograd/node.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/reshape.h"
#include "kernels/flat_index.h"

namespace zinc::autograd {
namespace {

// A shape round one dimension.
struct Parts {
  int64_t outer = 1;
  int64_t inner = 1;
};
Parts parts_of(const Shape& shape, int dim) {
  Parts parts;
  for (int d = 0; d < dim; ++d) parts.outer *= shape[d];
  for (int d = dim + 1; d < shape.rank(); ++d) parts.inner *= shape[d];
  return parts;
}

// Rows of [outer * extent, row] that the index names, as ids of gather_rows.
Tensor flat_ids(const char* op, const Tensor& index, int64_t extent, const Shape& shape) {
  Tensor flat = Tensor::empty(shape, DType::i64);
  kernels::flat_index({.index = index.view(), .extent = extent, .flat = flat.view(), .op = op},
                      compute_stream());
  return flat.reshape_view(Shape{flat.numel()});
}

// `index` has the extents of x but for dim.
void require_index_of(std::string_view op, const Tensor& x, int dim, const Tensor& index) {
  bool fits = x.rank() == index.rank();
  for (int d = 0; fits && d < x.rank(); ++d) fits = d == dim || x.dim(d) == index.dim(d);
  require(fits, op, ": index of shape ", index.shape(), " for x of shape ", x.shape(),
          ": they must agree but for dimension ", dim);
  require(index.dtype() == DType::i32 || index.dtype() == DType::i64, op,
          ": index must be i32 or i64, not ", index.dtype());
}

Tensor element_ids(const char* op, const Tensor& x, int dim, const Tensor& index) {
  const Parts parts = parts_of(index.shape(), dim);
  const Shape shape{parts.outer, index.dim(dim), parts.inner};
  return flat_ids(op, contiguous(index).reshape_view(shape), x.dim(dim), shape);
}

Tensor as_rows(const Tensor& x, int64_t row) {
  return reshape(contiguous(x), Shape{row == 0 ? 0 : x.numel() / row, row});
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  const int d = checked_dim("gather", dim, x.shape());
  require_index_of("gather", x, d, index);
  const Tensor ids = element_ids("gather", x, d, index);
  return reshape(gather_rows(as_rows(x, 1), ids), index.shape());
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  const int d = checked_dim("scatter_add", dim, x.shape());
  require_index_of("scatter_add", x, d, index);
  require(source.shape() == index.shape(), "scatter_add: source of shape ", source.shape(),
          " for index of shape ", index.shape());
  require(source.dtype() == x.dtype(), "scatter_add: dtypes differ: ", x.dtype(), " vs ",
          source.dtype());
  const Tensor ids = element_ids("scatter_add", x, d, index);
  const Tensor sums = scatter_rows(as_rows(source, 1), ids, as_rows(x, 1));
  return reshape(sums, x.shape());
}

Tensor index_select(const Tensor& x, int dim, const Tensor& ids) {
  const int d = checked_dim("index_select", dim, x.shape());
  require(ids.rank() == 1, "index_select: ids must be a vector, not ", ids.shape());
  const Parts parts = parts_of(x.shape(), d);
  Shape shape = x.shape();
  shape.set(d, ids.dim(0));
  const Tensor rows = as_rows(x, parts.inner);
  const Tensor flat =
      flat_ids("index_select", contiguous(ids), x.dim(d), Shape{parts.outer, ids.dim(0), 1});
  return reshape(gather_rows(rows, flat), shape);
}

}  // namespace zinc::autograd
