#include "autograd/functions/shapes.h"

#include <algorithm>

#include "autograd/ops/cast.h"
#include "autograd/ops/compare.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/gather.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/split.h"

namespace zinc::autograd {
namespace {

// x without the dimensions that `drops` names, of extent 1.
Tensor without(const Tensor& x, const std::vector<bool>& drops) {
  if (std::ranges::find(drops, true) == drops.end()) return x;
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (!drops[static_cast<size_t>(d)]) shape.push_back(x.dim(d));
  }
  return reshape(contiguous(x), shape);
}

Tensor positions(int64_t count, const Shape& shape, int64_t begin) {
  return arange(begin, begin + count).reshape_view(shape);
}

Tensor triangle(CompareOp op, int64_t rows, int64_t cols, int64_t diagonal) {
  return compare(op, positions(cols, Shape{1, cols}, 0), positions(rows, Shape{rows, 1}, diagonal));
}

}  // namespace

Tensor at(const Tensor& x, std::span<const Index> places) {
  require(static_cast<int>(places.size()) <= x.rank(), "at: ", places.size(),
          " places for a tensor of shape ", x.shape());
  std::vector<bool> drops(static_cast<size_t>(x.rank()), false);
  Tensor part = x;
  for (size_t i = 0; i < places.size(); ++i) {
    const int d = static_cast<int>(i);
    const int64_t extent = x.dim(d);
    if (const auto* index = std::get_if<int64_t>(&places[i])) {
      require(*index >= -extent && *index < extent, "at: no element ", *index, " in dimension ", d,
              " of shape ", x.shape());
      part = narrow(part, d, *index < 0 ? *index + extent : *index, 1);
      drops[i] = true;
      continue;
    }
    const Slice slice = std::get<Slice>(places[i]);
    const auto bound = [&](int64_t b) {
      return std::clamp<int64_t>(b < 0 ? b + extent : b, 0, extent);
    };
    const int64_t begin = bound(slice.begin);
    const int64_t length = std::max<int64_t>(0, bound(slice.end) - begin);
    if (length != extent) part = narrow(part, d, begin, length);
  }
  return without(part, drops);
}

Tensor stack(std::span<const Tensor> parts, int dim) {
  require(!parts.empty(), "stack: no parts");
  const Shape& shape = parts.front().shape();
  const int d = checked_dim("stack", dim, shape, shape.rank() + 1);
  std::vector<Tensor> rows;
  for (const Tensor& part : parts) {
    require(part.shape() == shape, "stack: shapes differ: ", shape, " vs ", part.shape());
    rows.push_back(unsqueeze(contiguous(part), d));
  }
  return concat(rows, d);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const int at = checked_dim("unsqueeze", dim, x.shape(), x.rank() + 1);
  Shape shape;
  for (int d = 0; d <= x.rank(); ++d) {
    if (d == at) shape.push_back(1);
    if (d < x.rank()) shape.push_back(x.dim(d));
  }
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, int dim) {
  const int d = checked_dim("squeeze", dim, x.shape());
  require(x.dim(d) == 1, "squeeze: dimension ", dim, " of shape ", x.shape(), " has ", x.dim(d),
          " elements");
  std::vector<bool> drops(static_cast<size_t>(x.rank()), false);
  drops[static_cast<size_t>(d)] = true;
  return without(x, drops);
}

Tensor flatten(const Tensor& x, int first, int last) {
  if (x.rank() == 0) return reshape(x, Shape{1});
  const int from = checked_dim("flatten", first, x.shape());
  const int to = checked_dim("flatten", last, x.shape());
  require(from <= to, "flatten: dimension ", first, " comes after ", last, " in shape ", x.shape());
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (d <= from || d > to) {
      shape.push_back(x.dim(d));
    } else {
      shape.set(from, shape[from] * x.dim(d));
    }
  }
  return reshape(x, shape);
}

Tensor pad(const Tensor& x, int dim, int64_t before, int64_t after, double value) {
  const int d = checked_dim("pad", dim, x.shape());
  require(before >= 0 && after >= 0, "pad: counts must not be negative: ", before, " and ", after);
  std::vector<Tensor> parts;
  const auto add_edge = [&](int64_t count) {
    if (count == 0) return;
    Shape shape = x.shape();
    shape.set(d, count);
    parts.push_back(Tensor::full(shape, value, x.dtype()));
  };
  add_edge(before);
  parts.push_back(x);
  add_edge(after);
  return parts.size() == 1 ? x : concat(parts, d);
}

Tensor flip(const Tensor& x, int dim) {
  const int d = checked_dim("flip", dim, x.shape());
  return index_select(x, d, arange(x.dim(d) - 1, -1, -1));
}

Tensor arange(int64_t begin, int64_t end, int64_t step, DType dtype) {
  require(step != 0, "arange: the step must not be 0");
  std::vector<int64_t> values;
  for (int64_t v = begin; step > 0 ? v < end : v > end; v += step) values.push_back(v);
  return Tensor::from(values, Shape{static_cast<int64_t>(values.size())}, dtype);
}

Tensor one_hot(const Tensor& ids, int64_t classes, DType dtype) {
  require(classes > 0, "one_hot: the number of classes must be positive: ", classes);
  require(ids.dtype() == DType::i32 || ids.dtype() == DType::i64,
          "one_hot: ids must be i32 or i64, not ", ids.dtype());
  Shape shape;
  for (int d = 0; d < ids.rank(); ++d) shape.push_back(ids.dim(d));
  shape.push_back(1);
  const Tensor mask =
      compare(CompareOp::eq, ids.reshape_view(shape), arange(0, classes, 1, ids.dtype()));
  return cast(mask, dtype);
}

Tensor tril_mask(int64_t rows, int64_t cols, int64_t diagonal) {
  return triangle(CompareOp::le, rows, cols, diagonal);
}
Tensor triu_mask(int64_t rows, int64_t cols, int64_t diagonal) {
  return triangle(CompareOp::ge, rows, cols, diagonal);
}

}  // namespace zinc::autograd
