#include "autograd/functions/losses.h"

#include "autograd/dims.h"
#include "autograd/functions/shapes.h"
#include "autograd/operators.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/gather.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/where.h"

namespace zinc::autograd {
namespace {

Tensor widened(const Tensor& x) { return is_16bit_float(x.dtype()) ? cast(x, DType::f32) : x; }

void require_labels(std::string_view op, const Tensor& x, const Tensor& labels) {
  require(x.rank() >= 1 && labels.numel() == x.view().rows(), op, ": ", labels.numel(),
          " labels for rows of shape ", x.shape());
  require(labels.dtype() == DType::i32 || labels.dtype() == DType::i64, op,
          ": labels must be i32 or i64, not ", labels.dtype());
}

void require_same_shape(std::string_view op, const Tensor& x, const Tensor& target) {
  require(x.shape() == target.shape(), op, ": x of shape ", x.shape(), ", target of shape ",
          target.shape());
}

// Sum of a value per row over the rows that have a label.
Tensor sum_of_labelled(const Tensor& rows, const Tensor& labels) {
  const Tensor ignored = compare(CompareOp::eq, labels, kernels::kIgnoredLabel);
  return sum(masked_fill(flatten(rows), flatten(ignored), 0.0));
}

}  // namespace

Tensor log_softmax(const Tensor& x, int dim) {
  checked_dim("log_softmax", dim, x.shape());
  const Tensor wide = widened(x);
  return cast(wide - logsumexp(wide, dim, true), x.dtype());
}

Tensor mse_loss(const Tensor& x, const Tensor& target) {
  require_same_shape("mse_loss", x, target);
  return sum(flatten(square(widened(x) - widened(target))));
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target) {
  require_same_shape("binary_cross_entropy_with_logits", x, target);
  const Tensor wide = widened(x);
  return sum(flatten(softplus(wide) - wide * widened(target)));
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& labels) {
  require_labels("nll_loss", log_probabilities, labels);
  const Tensor rows = flatten(contiguous(labels));
  const Tensor ignored = compare(CompareOp::eq, rows, kernels::kIgnoredLabel);
  const Tensor matrix =
      reshape(contiguous(log_probabilities), Shape{rows.numel(), log_probabilities.dim(-1)});
  const Tensor picked = gather(matrix, 1, unsqueeze(masked_fill(rows, ignored, 0.0), 1));
  return -sum(masked_fill(widened(flatten(picked)), ignored, 0.0));
}

Tensor smoothed_cross_entropy(const Tensor& logits, const Tensor& labels, double smoothing) {
  require_labels("smoothed_cross_entropy", logits, labels);
  require(smoothing >= 0.0 && smoothing <= 1.0,
          "smoothed_cross_entropy: smoothing must lie in [0, 1]: ", smoothing);
  const Tensor wide = widened(logits);
  const Tensor to_all = logsumexp(wide, -1) - mean(wide, -1);
  return cross_entropy(logits, labels) * (1.0 - smoothing) +
         sum_of_labelled(to_all, labels) * smoothing;
}

Tensor z_loss(const Tensor& logits, const Tensor& labels) {
  require_labels("z_loss", logits, labels);
  return sum_of_labelled(square(logsumexp(widened(logits), -1)), labels);
}

}  // namespace zinc::autograd
