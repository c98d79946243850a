#include "parallel/ring_attention.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/mode.h"
#include "autograd/node.h"
#include "autograd/recorded_draws.h"
#include "autograd/view_shapes.h"
#include "core/context.h"
#include "core/error.h"
#include "core/philox.h"
#include "core/trace_span.h"
#include "kernels/accumulate.h"
#include "kernels/attention.h"
#include "kernels/attention_merge.h"
#include "kernels/attention_sinks.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace zinc::parallel {
namespace {

using autograd::AttentionOptions;

StreamRef compute() { return Context::current().compute(); }
DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }
View flat(const Tensor& x) { return x.view().reshape(Shape{x.numel()}); }

Tensor filled(const Shape& shape, DType dtype, double value) {
  Tensor made = Tensor::empty(shape, dtype);
  kernels::fill({.y = made.view(), .value = value}, compute());
  return made;
}

// B sequences, n tokens of a chunk, H heads of queries and G of keys, of size D. A rank has two
// chunks.
struct Sizes {
  int64_t B, n, H, G, D;
  DType dtype;

  Shape queries() const { return {B, n, H * D}; }
  Shape keys() const { return {B, n, 2 * G * D}; }  // keys and values
  Shape sums() const { return {B, H, n}; }
  static Shape of_two(const Shape& chunk) { return {2, chunk[0], chunk[1], chunk[2]}; }
  View query_heads(const View& rows) const {
    return autograd::heads_of("ring attention", rows, 0, H, D);
  }
  View key_heads(const View& rows) const {
    return autograd::heads_of("ring attention", rows, 0, G, D);
  }
  View value_heads(const View& rows) const {
    return autograd::heads_of("ring attention", rows, G, G, D);
  }
};

View chunk_of(const Tensor& of_two, int chunk) {
  const Shape& shape = of_two.shape();
  return of_two.view().narrow(0, chunk, 1).reshape(Shape{shape[1], shape[2], shape[3]});
}

// Visits the two chunks of [B, 2 n, W] with their places in [2, B, n, W].
template <class Visit>
void for_each_chunk(const Tensor& rows, const Tensor& of_two, const Visit& visit) {
  const int64_t n = of_two.dim(2);
  for (int c = 0; c < 2; ++c) visit(rows.view().narrow(1, c * n, n), chunk_of(of_two, c));
}
void convert(const ConstView& from, const View& to) {
  kernels::copy({.x = from, .y = to}, compute());
}

// Hands a buffer to the next rank while the compute stream goes on. On another device than the
// group's, as when a step is recorded, it does nothing.
comm::Work pass_on(comm::World& group, const Tensor& from, const Tensor& to) {
  if (from.device() != group.context().device()) return {};
  const StreamRef ring = Context::current().stream(StreamRole::gather);
  ring->wait(compute()->record());
  const TraceSpan span(group.context().trace(), TraceKind::exchange, ring, "next rank of the ring",
                       from.view().bytes());
  return group.communicator().shift({.in = flat(from), .out = flat(to)}, ring);
}

class RingAttention final : public autograd::Node {
 public:
  // `how.key_begin`: of this rank's tokens, [B, 2 n].
  RingAttention(comm::World& group, const nn::SequenceRanks& ranks, const Sizes& sizes,
                const AttentionOptions& how)
      : group_(group), sizes_(sizes), how_(how) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto runs = nn::token_runs(ranks, rank, 2 * sizes.n * ranks.size());
      first_of_.push_back({runs[0].begin, runs[1].begin});
    }
  }
  std::string_view name() const override { return "ring attention"; }

  // Adds to out [2, B, n, H D] and lse [2, B, H, n].
  void forward(const Tensor& q, const Tensor& k_and_v, const Tensor& out, const Tensor& lse) {
    Tensor keys = in_chunks(k_and_v);
    const Tensor part = Tensor::empty(sizes_.queries(), sizes_.dtype);
    const Tensor part_lse = Tensor::empty(sizes_.sums(), lse.dtype());
    for (int turn = 0; turn < group_.size(); ++turn) {
      Tensor next;
      const comm::Work work = pass_keys(turn, keys, next);
      for_each_pair(turn, [&](int c, int k, const kernels::AttentionMask& mask) {
        const View theirs = chunk_of(keys, k);
        draws_.push_back(how_.dropout > 0.0 ? autograd::draw(site_of(turn, c, k))
                                            : autograd::Draw{});
        kernels::attention_forward({.q = sizes_.query_heads(own_rows(q, c)),
                                    .k = sizes_.key_heads(theirs),
                                    .v = sizes_.value_heads(theirs),
                                    .out = sizes_.query_heads(part.view()),
                                    .lse = part_lse.view(),
                                    .scale = how_.scale,
                                    .softcap = how_.softcap,
                                    .mask = mask,
                                    .dropout = dropout(draws_.back())},
                                   compute());
        kernels::attention_merge({.part = sizes_.query_heads(part.view()),
                                  .part_lse = part_lse.view(),
                                  .out = sizes_.query_heads(chunk_of(out, c)),
                                  .lse = chunk_of(lse, c)},
                                 compute());
      });
      work.wait_on(compute());
      if (next.defined()) keys = std::move(next);
    }
  }

  // Behind forward(): the sinks join the softmax over all keys.
  void join_sinks(const Tensor& out, const Tensor& lse) const {
    for (int c = 0; c < 2; ++c) {
      kernels::attention_sinks({.sinks = how_.sinks.view(),
                                .out = sizes_.query_heads(chunk_of(out, c)),
                                .lse = chunk_of(lse, c)},
                               compute());
    }
  }

  void backward(autograd::BackwardPass& pass) override {
    const Tensor dout = pass.take_gradient(0);
    const Tensor q = pass.take_saved(0), out = pass.take_saved(2), lse = pass.take_saved(3);
    if (how_.sinks.defined() && pass.needs(2))
      pass.give(2, gradient_of_sinks(pass, out, lse, dout));
    const Tensor dq = filled(Sizes::of_two(sizes_.queries()), lse.dtype(), 0.0);
    const Tensor dkeys = backward_turns(q, pass.take_saved(1), out, lse, dout, dq);
    if (pass.needs(0)) give(pass, 0, dq);
    if (pass.needs(1)) give(pass, 1, dkeys);
  }

 private:
  Tensor gradient_of_sinks(autograd::BackwardPass& pass, const Tensor& out, const Tensor& lse,
                           const Tensor& dout) const {
    Tensor sum = pass.gradient_memory(2, true);
    const Tensor of_second = Tensor::empty(sum.shape(), sum.dtype());
    for (int c = 0; c < 2; ++c) {
      kernels::attention_sinks_backward({.sinks = how_.sinks.view(),
                                         .out = sizes_.query_heads(own_rows(out, c)),
                                         .lse = chunk_of(lse, c),
                                         .dout = sizes_.query_heads(own_rows(dout, c)),
                                         .dsinks = (c == 0 ? sum : of_second).view()},
                                        compute());
    }
    add(of_second, sum.view());
    return sum;
  }

  // Adds to dq. Returns the gradient of this rank's keys and values, [2, B, n, 2 G D].
  Tensor backward_turns(const Tensor& q, const Tensor& k_and_v, const Tensor& out,
                        const Tensor& lse, const Tensor& dout, const Tensor& dq) {
    const Shape shape = Sizes::of_two(sizes_.keys());
    Tensor keys = in_chunks(k_and_v);
    // gradients of the current keys and values, summed over the ranks before
    Tensor sums = filled(shape, lse.dtype(), 0.0);
    Tensor sent;
    comm::Work arriving;
    const Tensor part_q = Tensor::empty(sizes_.queries(), sizes_.dtype);
    const Tensor part_keys = Tensor::empty(sizes_.keys(), sizes_.dtype);
    size_t number = 0;
    for (int turn = 0; turn < group_.size(); ++turn) {
      Tensor next;
      const comm::Work work = pass_keys(turn, keys, next);
      for_each_pair(turn, [&](int c, int k, const kernels::AttentionMask& mask) {
        const View theirs = chunk_of(keys, k), rows = part_keys.view();
        kernels::attention_backward({.q = sizes_.query_heads(own_rows(q, c)),
                                     .k = sizes_.key_heads(theirs),
                                     .v = sizes_.value_heads(theirs),
                                     .out = sizes_.query_heads(own_rows(out, c)),
                                     .lse = chunk_of(lse, c),
                                     .dout = sizes_.query_heads(own_rows(dout, c)),
                                     .dq = sizes_.query_heads(part_q.view()),
                                     .dk = sizes_.key_heads(rows),
                                     .dv = sizes_.value_heads(rows),
                                     .scale = how_.scale,
                                     .softcap = how_.softcap,
                                     .mask = mask,
                                     .dropout = dropout(draws_[number++])},
                                    compute());
        std::exchange(arriving, {}).wait_on(compute());
        add(part_q, chunk_of(dq, c));
        add(part_keys, chunk_of(sums, k));
      });
      std::exchange(arriving, {}).wait_on(compute());
      work.wait_on(compute());
      if (next.defined()) keys = std::move(next);
      const Tensor passed = std::exchange(sums, Tensor::empty(shape, lse.dtype()));
      arriving = pass_on(group_, passed, sums);
      sent = passed;  // keeps the memory until the message has arrived
    }
    arriving.wait_on(compute());
    return sums;
  }

  // The keys and values that go round: [2, B, n, 2 G D].
  Tensor in_chunks(const Tensor& k_and_v) const {
    Tensor keys = Tensor::empty(Sizes::of_two(sizes_.keys()), sizes_.dtype, Label::communication);
    for_each_chunk(k_and_v, keys, [](const View& row, const View& chunk) { convert(row, chunk); });
    return keys;
  }

  static void add(const Tensor& x, const View& total) {
    kernels::accumulate({.x = flat(x), .accumulator = total.reshape(Shape{x.numel()})}, compute());
  }

  static void give(autograd::BackwardPass& pass, int input, const Tensor& of_two) {
    Tensor rows = pass.gradient_memory(input, true);
    for_each_chunk(rows, of_two, [](const View& row, const View& chunk) { convert(chunk, row); });
    pass.give(input, std::move(rows));
  }

  // Passes the keys on, and receives those of turn + 1 in `next`, if there is such a turn.
  comm::Work pass_keys(int turn, const Tensor& keys, Tensor& next) {
    if (turn + 1 == group_.size()) return {};
    next = Tensor::empty(keys.shape(), keys.dtype(), Label::communication);
    return pass_on(group_, keys, next);
  }

  View own_rows(const Tensor& rows, int chunk) const {
    return rows.view().narrow(1, chunk * sizes_.n, sizes_.n);
  }

  // The rank whose keys are here in this turn.
  int source_of(int turn) const { return (group_.rank() + group_.size() - turn) % group_.size(); }
  int64_t begin_of(int rank, int chunk) const {
    return first_of_[static_cast<size_t>(rank)][static_cast<size_t>(chunk)];
  }

  // visit(chunk of queries, chunk of keys, mask), where queries see keys.
  template <class Visit>
  void for_each_pair(int turn, const Visit& visit) const {
    for (int c = 0; c < 2; ++c) {
      const int64_t query = begin_of(group_.rank(), c);
      for (int k = 0; k < 2; ++k) {
        const int64_t key = begin_of(source_of(turn), k);
        const int64_t nearest = query - key - sizes_.n + 1;
        if (key > query || (how_.window > 0 && nearest >= how_.window)) continue;
        const Tensor& lengths = how_.key_lengths;
        const Tensor& slopes = how_.alibi_slopes;
        kernels::AttentionMask mask{.causal = true, .window = how_.window};
        if (lengths.defined()) mask.key_lengths = lengths.view();
        if (how_.key_begin.defined()) mask.key_begin = own_rows(how_.key_begin, c);
        if (slopes.defined()) mask.alibi_slopes = slopes.view();
        mask.origin = {.query = query, .key = key};
        mask.layout = {.blocks = how_.layout, .first_head = how_.layout_head};
        if (how_.layout_words.defined()) mask.layout.words = how_.layout_words.view();
        visit(c, k, mask);
      }
    }
  }

  uint64_t site_of(int turn, int c, int k) const {
    const uint64_t queries =
        combine_bits(how_.site, static_cast<uint64_t>(begin_of(group_.rank(), c)));
    return combine_bits(queries, static_cast<uint64_t>(begin_of(source_of(turn), k)));
  }
  kernels::AttentionDropout dropout(const autograd::Draw& drawn) const {
    return {.probability = static_cast<float>(how_.dropout),
            .key = drawn.key,
            .counter = drawn.counter};
  }

  comm::World& group_;
  const Sizes sizes_;
  AttentionOptions how_;
  std::vector<std::array<int64_t, 2>> first_of_;  // first position of each rank's chunks
  std::vector<autograd::Draw> draws_;             // one for each pair of chunks
};

}  // namespace

Tensor ring_attention(comm::World& group, const nn::SequenceRanks& ranks, const Tensor& q,
                      const Tensor& k_and_v, const AttentionOptions& how) {
  require(how.causal && !how.bias.defined() && !how.key_end.defined(),
          "ring attention: a causal mask without a bias and without ends of documents is needed");
  const int64_t G = how.num_kv_heads > 0 ? how.num_kv_heads : how.num_heads;
  const Sizes sizes{.B = q.dim(0),
                    .n = q.dim(1) / 2,
                    .H = how.num_heads,
                    .G = G,
                    .D = q.dim(2) / how.num_heads,
                    .dtype = q.dtype()};
  AttentionOptions own = how;
  own.key_begin = nn::part_of_sequence(how.key_begin.defined() ? &ranks : nullptr, how.key_begin);
  const auto node = autograd::make_node<RingAttention>(group, ranks, sizes, own);
  const DType wide = wide_of(q.dtype());
  const Tensor sum = filled(Sizes::of_two(sizes.queries()), wide, 0.0);
  const Tensor lse =
      filled(Sizes::of_two(sizes.sums()), wide, -std::numeric_limits<double>::infinity());
  node->forward(q, k_and_v, sum, lse);
  if (how.sinks.defined()) node->join_sinks(sum, lse);
  Tensor out = Tensor::empty(q.shape(), q.dtype());
  for_each_chunk(out, sum, [](const View& row, const View& chunk) { convert(chunk, row); });
  if (!autograd::needs_gradient(q, k_and_v, how.sinks)) return out;
  node->add_input(q);
  node->add_input(k_and_v);
  node->add_input(how.sinks);
  for (const Tensor& saved : {q, k_and_v, out, lse}) node->save(saved);
  node->set_output(out);
  return out;
}

}  // namespace zinc::parallel
