// parallel/token_runs.h: tokens that lie on several ranks, brought together and summed.
#pragma once

#include <vector>

#include "comm/world.h"
#include "core/shape.h"
#include "nn/sequence_ranks.h"
#include "tensor/tensor.h"

namespace zinc::parallel {

using Runs = std::vector<nn::TokenRun>;

// [S, B, t, w]: a block for each rank.
struct Blocks {
  static Blocks empty(int64_t size, const Shape& shape, DType dtype) {
    return {shape,
            Tensor::empty(Shape{size, shape[0], shape[1], shape[2]}, dtype, Label::communication)};
  }
  View of(int64_t rank) const { return all.view().narrow(0, rank, 1).reshape(shape); }

  Shape shape;  // of a block
  Tensor all;
};

void copy(const ConstView& from, const View& to);  // on the compute stream

// x: [B, t, W], the tokens `runs[rank]` of this rank, one run after the other. Returns those of all
// ranks, in their order: [B, T, W].
Tensor all_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs);
// x: [B, T, W]. Returns the sum over ranks of this rank's tokens, [B, t, W], in f32 over a fixed
// tree.
Tensor sum_of_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs);
// Both only allocate where x is on another device than the group's, as when a step is recorded.

}  // namespace zinc::parallel
