#include "autograd/functions/padding.h"

#include "autograd/functions/shapes.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/compare.h"
#include "autograd/ops/cumsum.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/where.h"
#include "core/error.h"

namespace zinc::autograd {

Tensor length_mask(const Tensor& lengths, int64_t T) {
  require(lengths.rank() == 1, "length_mask: lengths must be [B], not ", lengths.shape());
  // 1, 2, ... T as the running sum of ones: nothing is copied from the host, and so a CUDA graph
  // may hold it. Exact up to 2^24.
  const Tensor places = cumsum(Tensor::full(Shape{1, T}, 1.0));
  const Tensor counts = cast(lengths, DType::f32);
  return compare(CompareOp::le, places, counts.reshape_view(Shape{lengths.dim(0), 1}));
}

Tensor mean_over_tokens(const Tensor& x, const Tensor& lengths) {
  require(x.rank() == 3, "mean_over_tokens: x must be [B, T, C], not ", x.shape());
  if (!lengths.defined()) return mean(x, 1);
  require(lengths.rank() == 1 && lengths.dim(0) == x.dim(0), "mean_over_tokens: lengths ",
          lengths.shape(), " for x of shape ", x.shape());
  const Tensor padding = unsqueeze(logical_not(length_mask(lengths, x.dim(1))), -1);
  // Summed in f32; bf16 cannot represent every length beyond 256.
  const DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor total = sum(cast(masked_fill(x, padding, 0.0), wide), 1);
  return cast(div(total, unsqueeze(cast(lengths, wide), -1)), x.dtype());
}

}  // namespace zinc::autograd
