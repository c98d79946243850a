// parallel/token_runs.h: tokens that lie on several ranks, brought together and summed.
#pragma once

#include <functional>
#include <vector>

#include "comm/world.h"
#include "core/context.h"
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

// Where collectives go on beside the compute stream, behind what that was given so far; the compute
// stream itself where a thread of the CPU would take a core from it (two ranks on two cores lost 1
// to 2 % of a step).
StreamRef stream_beside_compute();
// Issues `collective`, if `runs`, then `meanwhile`, and lets the compute stream wait for the first:
// what both work on must stay until this returns. With a `meanwhile` the collective goes
// to stream_beside_compute().
void beside(bool runs, const std::function<void()>& meanwhile,
            const std::function<comm::Work(StreamRef)>& collective);

// x: [B, t, W], the tokens `runs[rank]` of this rank, one run after the other. Returns those of all
// ranks, in their order: [B, T, W].
Tensor all_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs);
// The same in two halves: tokens travel until finish() lets compute wait for them. is_beside: on
// stream_beside_compute().
class TokensUnderWay {
 public:
  TokensUnderWay(comm::World& group, const Tensor& x, bool is_beside);
  Tensor finish(const std::vector<Runs>& runs);

 private:
  Tensor mine_;
  Blocks blocks_;
  comm::Work work_;
};
// x: [B, T, W]. Returns the sum over ranks of this rank's tokens, [B, t, W], in f32 over a fixed
// tree. `meanwhile` issues what does not need it.
Tensor sum_of_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                     const std::function<void()>& meanwhile = {});
// Both only allocate where x is on another device than the group's, as when a step is recorded.

}  // namespace zinc::parallel
