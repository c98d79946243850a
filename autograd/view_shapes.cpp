#include "autograd/view_shapes.h"

#include <utility>

#include "core/context.h"
#include "kernels/copy.h"

namespace zinc::autograd {
namespace {

template <class AnyView>
AnyView matrix(std::string_view op, const AnyView& view) {
  const int rank = view.rank();
  const Shape shape{view.rows(), view.cols()};
  if (rank == 2) return view;
  if (view.is_contiguous()) return view.reshape(shape);
  int64_t row_stride = 0;  // stride of the innermost leading dimension that has one
  int64_t expected = 0;
  for (int d = rank - 2; d >= 0; --d) {
    if (view.dim(d) == 1) continue;
    if (row_stride == 0) {
      row_stride = view.stride(d);
    } else {
      require(view.stride(d) == expected, op, ": the rows of a tensor of shape ", view.shape(),
              " do not lie at one stride; copy it with contiguous() first");
    }
    expected = view.stride(d) * view.dim(d);
  }
  Strides strides{};
  strides[0] = row_stride == 0 ? view.cols() : row_stride;
  strides[1] = 1;
  return AnyView(view.data(), view.dtype(), shape, strides, view.device(), view.tier());
}

template <class AnyView>
AnyView heads(std::string_view op, const AnyView& view, int64_t first, int64_t count,
              int64_t head_size) {
  if (view.rank() == 4) {
    require(first == 0 && view.dim(1) == count && view.dim(3) == head_size, op, ": ", count,
            " heads of size ", head_size, " are not those of [B, heads, T, head_size] ",
            view.shape());
    const Shape shape{view.dim(0), view.dim(2), count, head_size};
    Strides strides{};
    for (int d = 0; d < 4; ++d) strides[static_cast<size_t>(d)] = view.stride(d);
    std::swap(strides[1], strides[2]);
    return AnyView(view.data(), view.dtype(), shape, strides, view.device(), view.tier());
  }
  require(view.rank() == 3, op, ": [B, T, heads * head_size] is needed here, not ", view.shape());
  require(
      head_size > 0 && view.cols() % head_size == 0 && (first + count) * head_size <= view.cols(),
      op, ": ", first + count, " heads of size ", head_size, " do not fit into ", view.shape());
  const AnyView part = view.narrow(2, first * head_size, count * head_size);
  const Shape shape{view.dim(0), view.dim(1), count, head_size};
  Strides strides{};
  strides[0] = view.stride(0);
  strides[1] = view.stride(1);
  strides[2] = head_size;
  strides[3] = 1;
  return AnyView(part.data(), view.dtype(), shape, strides, view.device(), view.tier());
}

}  // namespace

ConstView as_matrix(std::string_view op, const ConstView& view) { return matrix(op, view); }
View as_matrix(std::string_view op, const View& view) { return matrix(op, view); }

ConstView heads_of(std::string_view op, const ConstView& view, int64_t first, int64_t count,
                   int64_t head_size) {
  return heads(op, view, first, count, head_size);
}
View heads_of(std::string_view op, const View& view, int64_t first, int64_t count,
              int64_t head_size) {
  return heads(op, view, first, count, head_size);
}

void copy_to_heads(const Tensor& packed, const Tensor& heads) {
  const int64_t count = heads.dim(1), size = heads.dim(3);
  kernels::copy({.x = heads_of("copy_to_heads", ConstView(packed.view()), 0, count, size),
                 .y = heads_of("copy_to_heads", heads.view(), 0, count, size)},
                Context::current().compute());
}

}  // namespace zinc::autograd
