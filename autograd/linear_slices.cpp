#include "autograd/linear_slices.h"

#include "autograd/mode.h"
#include "kernels/copy.h"
#include "kernels/tree_sum.h"

namespace zinc::autograd {
namespace {

template <class V>
V part_of(const V& view, int dim, const TensorSlice::Piece& piece) {
  return !view || dim < 0 ? view : view.narrow(dim, piece.begin, piece.count);
}

kernels::Gemm of_piece(const SlicedGemm& product, const TensorSlice::Piece& piece) {
  kernels::Gemm gemm = product.whole;
  gemm.a = part_of(gemm.a, product.a, piece);
  gemm.b = part_of(gemm.b, product.b, piece);
  gemm.c = part_of(gemm.c, product.c, piece);
  gemm.bias = part_of(gemm.bias, product.c < 0 ? -1 : 0, piece);
  gemm.activation_input = part_of(gemm.activation_input, product.c, piece);
  gemm.factor = part_of(gemm.factor, product.c, piece);
  gemm.factor_gradient = part_of(gemm.factor_gradient, product.c, piece);
  gemm.pre_activation = part_of(gemm.pre_activation, product.c, piece);
  return gemm;
}

}  // namespace

void LinearSlices::sum_to(const View& out,
                          const std::function<void(size_t slice, const View& to)>& make) const {
  const DType wide = out.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const auto count = static_cast<int64_t>(slices.size());
  const Tensor parts = Tensor::empty(Shape{count, out.dim(0), out.dim(1)}, wide, Label::workspace);
  const View rows = parts.view().reshape(Shape{count, out.numel()});
  for (int64_t i = 0; i < count; ++i) {
    make(static_cast<size_t>(i), rows.narrow(0, i, 1).reshape(out.shape()));
  }
  const StreamRef compute = compute_stream();
  const Tensor sum = parts.narrow_view(0, 0, 1);
  if (count > 1 && out.numel() > 0) {
    kernels::tree_sum({.in = rows, .out = sum.view().reshape(Shape{out.numel()})}, compute);
  }
  add_up(sum);
  kernels::copy({.x = sum.view().reshape(out.shape()), .y = out}, compute);
}

void gemm(const SlicedGemm& product, const LinearSlices* slices) {
  const StreamRef compute = compute_stream();
  if (slices == nullptr) return kernels::gemm(product.whole, compute);
  if (product.c >= 0) {
    for (const auto& slice : slices->slices) {
      for (const TensorSlice::Piece& piece : slice) {
        kernels::gemm(of_piece(product, piece), compute);
      }
    }
    return;
  }
  slices->sum_to(product.whole.c, [&](size_t slice, const View& to) {
    bool adds = false;
    for (const TensorSlice::Piece& piece : slices->slices[slice]) {
      kernels::Gemm gemm = of_piece(product, piece);
      gemm.c = to;
      gemm.beta = adds ? 1.0 : 0.0;
      kernels::gemm(gemm, compute);
      adds = true;
    }
  });
}

}  // namespace zinc::autograd
