#include "optim/norm_scale.h"

#include "kernels/chunk_tree_sum.h"
#include "kernels/finite_norm.h"
#include "kernels/scale.h"
#include "tensor/tensor.h"

namespace zinc::optim {

void scale_by_norm(const View& x, double factor, double least_norm, const View& y,
                   StreamRef stream) {
  const int64_t chunks = kernels::num_norm_chunks(x.numel());
  const Tensor sums = Tensor::empty({chunks + 1}, DType::f64, Label::workspace);
  const Tensor first_nonfinite = Tensor::empty({1}, DType::i64, Label::workspace);
  const View parts = sums.view().narrow(0, 0, chunks);
  const View sum = sums.view().narrow(0, chunks, 1);
  kernels::finite_norm({.x = x.reshape(Shape{x.numel()}),
                        .chunk_sums = parts,
                        .first_nonfinite = first_nonfinite.view()},
                       stream);
  kernels::chunk_tree_sum({.sums = parts, .trees = {{0, chunks}}, .out = sum}, stream);
  kernels::scale(
      {.x = x, .factor = factor, .sum_of_squares = sum, .least_norm = least_norm, .y = y}, stream);
}

}  // namespace zinc::optim
