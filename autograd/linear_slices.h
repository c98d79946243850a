// autograd/linear_slices.h: products of a sliced layer whose bits do not depend on how many slices
// each rank has.
//
// Note [Fixed slices]
// A layer is cut into a fixed number of slices, of its outputs or of its inputs. A rank has one or
// several neighbouring slices and computes each by its own products, so that shapes do not depend
// on the number of ranks. Where results of slices are summed (as the gradient of the input, if
// outputs are cut), the terms are kept in f32 (f64 for f64), added over a binary tree of all
// slices, of which ranks have whole subtrees, and rounded once.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor_slice.h"
#include "kernels/gemm.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

struct LinearSlices {
  bool of_inputs = false;  // true: inputs are cut; false: outputs
  // The features of each slice of this rank, counted among the features of this rank: one piece, or
  // one piece of each section.
  std::vector<std::vector<TensorSlice::Piece>> slices;
  // Adds up a contiguous f32 (f64) sum over the ranks, in place, on the compute stream.
  std::function<void(const Tensor& sum)> add_up;

  // Sums, over all slices, the terms in f32 (f64 for f64) that make(slice, to) writes for the
  // slices of this rank. Rounds the sum to `out`.
  void sum_to(const View& out, const std::function<void(size_t slice, const View& to)>& make) const;
};

// A product. a, b and c say which dimension of the operand the sliced features are; -1: none.
struct SlicedGemm {
  kernels::Gemm whole;
  int a = -1, b = -1;
  int c = -1;  // -1: the features are multiplied out, and the result is a sum over slices
};

// `slices` null: one product of the whole layer.
void gemm(const SlicedGemm& product, const LinearSlices* slices);

}  // namespace zinc::autograd
