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

  Shape shape;  // shape of a block
  Tensor all;
};

// One event of the trace, of kind exchange, for a collective of `group` that is issued to `stream`
// while the span lives. `bytes`: of the whole tensor that the ranks gather, scatter or sum. This
// rank sends all but its own part of the bytes, and twice that for a sum on all ranks.
TraceSpan exchange_span(comm::World& group, std::string_view name, StreamRef stream, int64_t bytes);

void copy(const ConstView& from, const View& to);  // on the compute stream

// The stream for collectives that run beside the compute stream; it first waits for the work that
// the compute stream has so far. On a CPU it is the compute stream itself, since another thread
// would take a core from it (two ranks on two cores lost 1 to 2 % of a step).
StreamRef stream_beside_compute();
// Issues `collective`, if `runs`, then `meanwhile`, and makes the compute stream wait for the
// collective. Memory that both use must stay until this returns. With a `meanwhile` the collective
// goes to stream_beside_compute().
void beside(bool runs, const std::function<void()>& meanwhile,
            const std::function<comm::Work(StreamRef)>& collective);

// The least bytes, over all ranks, of a sequence that travels by itself. On a GPU 16 MiB: by the
// planner's estimate, shorter sequences cost more in messages than the copies of TokenPieces. On a
// CPU 0: all sequences travel at once.
int64_t least_sequence_on(const comm::World& group);

// The pieces in which tokens travel. With one sequence, the runs that follow each other over the
// ranks form a piece: it travels without a copy, and can be used while other pieces are under way.
// With several sequences, each sequence is a piece if every rank has one run of it and it has
// least_bytes bytes. Otherwise all tokens are one piece, between two copies.
struct TokenPieces {
  // x: [B, T, W], all tokens. least_bytes 0: one piece.
  TokenPieces(const std::vector<Runs>& runs, const Shape& x, DType dtype, int64_t least_bytes);
  // The stream of the pieces' collectives: stream_beside_compute() for several pieces, and for one
  // piece with `is_beside`.
  StreamRef stream(bool is_beside) const;
  int64_t count;
  bool are_in_place;  // no copies
};

// x: [B, t, W], the tokens `runs[rank]` of this rank, one run after the other. Gives the tokens of
// all ranks, in their order: [B, T, W].
class TokensUnderWay {
 public:
  // is_beside: on stream_beside_compute(), where several pieces are in any case.
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
  std::vector<comm::Work> works_;  // one for each piece; empty where nothing travels
};
Tensor all_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                  int64_t least_bytes);

// x: [B, T, W], this rank's terms of a sum over ranks. Gives the sum for this rank's tokens, [B, t,
// W], in f32 over a fixed tree. x must stay until finish().
class TokenSums {
 public:
  TokenSums(comm::World& group, const Tensor& x, std::vector<Runs> runs, int64_t least_bytes);
  int64_t num_pieces() const { return pieces_.count; }
  // Starts the sum of a piece that is in x now. Call for pieces in ascending order. is_beside: as
  // above.
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
// `meanwhile` issues work that does not need the sum.
Tensor sum_of_tokens(comm::World& group, const Tensor& x, const std::vector<Runs>& runs,
                     int64_t least_bytes, const std::function<void()>& meanwhile = {});
// On another device than the group's, as when a step is recorded, all of these only allocate.

}  // namespace zinc::parallel
