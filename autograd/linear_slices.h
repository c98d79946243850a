// autograd/linear_slices.h: products of a sliced layer whose bits do not depend on who has how many
// of the slices.
//
// Note [Fixed slices]
// A layer is cut into a fixed number of slices, of its outputs or of its inputs. A rank has one or
// several, side by side, and computes each with products of its own, so that shapes do not depend
// on the number of ranks. What slices contribute to a sum, as to the gradient of the input where
// outputs are cut, is kept in f32 (f64 for f64), added over a binary tree of all slices, of which
// ranks have whole subtrees, and rounded once.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor_slice.h"
#include "kernels/gemm.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

struct LinearSlices {
  bool of_inputs = false;  // else of outputs
  // Of each slice that is here, its features, counted among those that are here: one piece, or one
  // of each section.
  std::vector<std::vector<TensorSlice::Piece>> slices;
  // Adds up a contiguous f32 (f64) sum over the ranks, in place, on the compute stream.
  std::function<void(const Tensor& sum)> add_up;

  // The sum over all slices of what `make` writes, f32 (f64 for f64): make(slice, to) for those
  // here. Rounds it to `out`, of `shape` elements in rows.
  void sum_to(const View& out, const std::function<void(size_t slice, const View& to)>& make) const;
};

// A product of which the features that are sliced are a dimension of some operands; -1: of none.
struct SlicedGemm {
  kernels::Gemm whole;
  int a = -1, b = -1;
  int c = -1;  // -1: the features are multiplied out, and the result is a sum over slices
};

// `slices` null: one product.
void gemm(const SlicedGemm& product, const LinearSlices* slices);

}  // namespace zinc::autograd
