// parallel/token_runs.h: tokens that lie on several ranks, brought together and summed.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "core/context.h"
#include "core/shape.h"
#include "core/trace_span.h"
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

// One event of the trace, of kind exchange, for a collective of `group` that is issued to `stream`
// while the span lives. `bytes`: of the whole that the ranks bring together, share out or sum up;
// this rank sends all but its own part of it, to sum up on all ranks twice that.
TraceSpan exchange_span(comm::World& group, std::string_view name, StreamRef stream, int64_t bytes);

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

// The least bytes, over all ranks, of a sequence that travels by itself: 16 MiB on a GPU, where by
// plan shorter ones cost more in messages than the copies of TokenPieces. 0, all travel at once: on
// a CPU.
int64_t least_sequence_on(const comm::World& group);

// How tokens travel. Of one sequence, the runs that follow each other over the ranks are a piece:
// it goes straight to its place, and can be used while the others are under way. Of several
// sequences, each is a piece if every rank has one run of it and it has least_bytes bytes.
// Otherwise all are one piece, between two copies.
struct TokenPieces {
  // x: [B, T, W], all tokens. least_bytes 0: one piece.
  TokenPieces(const std::vector<Runs>& runs, const Shape& x, DType dtype, int64_t least_bytes);
  // Where they go: several of them, and one that is_beside, on stream_beside_compute().
  StreamRef stream(bool is_beside) const;
  int64_t count;
  bool are_in_place;  // no copies
};

// x: [B, t, W], the tokens `runs[rank]` of this rank, one run after the other. Gives those of all
// ranks, in their order: [B, T, W].
class TokensUnderWay {
 public:
  // is_beside: on stream_beside_compute(), where several pieces go anyway.
  TokensUnderWay(comm::World& group, const Tensor& x, std::vector<Runs> runs, int64_t least_bytes,
                 bool is_beside);
  int64_t num_pieces() const { return pieces_.count; }
  // Lets the compute stream wait for the sequences of a piece. The tensor is the same at every
  // call; the other pieces may not be there yet.
  Tensor wait(int64_t piece);
  Tensor wait_for_all() { return wait(num_pieces() - 1); }

 private:
  std::vector<Runs> runs_;
  TokenPieces pieces_;
  Tensor mine_;
  Blocks blocks_;
  Tensor whole_;
  std::vector<comm::Work> works_;  // of pieces; empty where nothing travels
};
Tensor all_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                  int64_t least_bytes);

// x: [B, T, W], of which each rank has a part of every element. Gives the sum over ranks of this
// rank's tokens, [B, t, W], in f32 over a fixed tree. x must stay until finish().
class TokenSums {
 public:
  TokenSums(comm::World& group, const Tensor& x, std::vector<Runs> runs, int64_t least_bytes);
  int64_t num_pieces() const { return pieces_.count; }
  // Of a piece that is in x now. Pieces in ascending order. is_beside: as above.
  void start(int64_t piece, bool is_beside);
  Tensor finish();

 private:
  comm::World& group_;
  std::vector<Runs> runs_;
  TokenPieces pieces_;
  Tensor x_;
  Blocks blocks_;
  Tensor workspace_;
  Tensor y_;
  comm::Work work_;  // the last one
};
// `meanwhile` issues what does not need it.
Tensor sum_of_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                     int64_t least_bytes, const std::function<void()>& meanwhile = {});
// All of them only allocate where x is on another device than the group's, as when a step is
// recorded.

}  // namespace zinc::parallel
