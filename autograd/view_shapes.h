// autograd/view_shapes.h: other shapes for strided views, for ops whose kernels take a fixed rank.
#pragma once

#include <string_view>

#include "core/view.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

// [..., cols] as [rows, cols] with one row stride. Throws InvalidArgument, starting with `op`,
// where the leading dimensions do not lie at one stride.
ConstView as_matrix(std::string_view op, const ConstView& view);
View as_matrix(std::string_view op, const View& view);

// A view of heads [first, first + count) of [B, T, n * D] as [B, T, count, D], D = head_size; of
// all heads of [B, n, T, D], too.
ConstView heads_of(std::string_view op, const ConstView& view, int64_t first, int64_t count,
                   int64_t head_size);
View heads_of(std::string_view op, const View& view, int64_t first, int64_t count,
              int64_t head_size);

// Copies `packed` [B, T, n * D] into `heads` [B, n, T, D], outer strides free in both. No gradient.
void copy_to_heads(const Tensor& packed, const Tensor& heads);

}  // namespace zinc::autograd
