// parallel/linear_slices.h: products of a sliced layer whose bits do not depend on how many slices
// each rank has.
//
// Note [Fixed slices]
// A layer is cut into a fixed number of slices, of its outputs or of its inputs. A rank has one or
// several neighbouring slices and computes each by its own products, so that shapes do not depend
// on the number of ranks. Where results of slices are summed (as the gradient of the input, if
// outputs are cut), the terms are kept in f32 (f64 for f64), added over a binary tree of all
// slices, of which ranks have whole subtrees, and rounded once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/linear_slices.h"
#include "nn/tensor_ranks.h"

namespace zinc::parallel {

// This rank's part of features in `sections`, cut into ranks.own_slices() slices: inputs of a
// layer, or outputs. `ranks` adds up sums, and must outlive the result.
std::shared_ptr<const autograd::LinearSlices> make_linear_slices(
    nn::TensorRanks& ranks, const std::vector<int64_t>& sections, bool of_inputs);

}  // namespace zinc::parallel
