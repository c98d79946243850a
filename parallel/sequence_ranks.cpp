#include "parallel/sequence_ranks.h"

#include <numeric>
#include <utility>
#include <vector>

#include "autograd/backward_pass.h"
#include "autograd/mode.h"
#include "autograd/node.h"
#include "core/context.h"
#include "core/error.h"
#include "kernels/copy.h"
#include "parallel/ring_attention.h"
#include "parallel/token_runs.h"

namespace zinc::parallel {
namespace {

// B sequences, t tokens of a rank, S ranks, W features of all heads, w = W / S.
enum class Direction : uint8_t { to_heads, to_tokens };

using Sections = std::vector<int64_t>;

void swap(comm::World& group, const Blocks& in, const Blocks& out) {
  if (in.all.device() != group.context().device()) return;
  const StreamRef compute = Context::current().compute();
  const Shape flat{in.all.numel()};
  const TraceSpan span = exchange_span(group, "tokens and heads", compute, in.all.view().bytes());
  group.communicator()
      .all_to_all({.in = in.all.view().reshape(flat), .out = out.all.view().reshape(flat)}, compute)
      .wait_on(compute);
}

// visit(first feature among all heads, first feature in the part, features) for part `rank` of each
// section.
template <class Visit>
void for_each_section(const Sections& sections, int64_t rank, int64_t size, const Visit& visit) {
  int64_t whole = 0, part = 0;
  for (const int64_t width : sections) {
    const int64_t count = width / size;
    visit(whole + rank * count, part, count);
    whole += width;
    part += count;
  }
}

// [B, t, W] -> [B, S t, w]
Tensor heads_of_all(comm::World& group, const Tensor& x, const Sections& sections) {
  const int64_t size = group.size(), B = x.dim(0), t = x.dim(1), w = x.dim(2) / size;
  const Shape block{B, t, w};
  const Blocks out = Blocks::empty(size, block, x.dtype());
  {
    const Blocks in = Blocks::empty(size, block, x.dtype());
    for (int64_t rank = 0; rank < size; ++rank) {
      for_each_section(sections, rank, size, [&](int64_t whole, int64_t part, int64_t count) {
        copy(x.view().narrow(2, whole, count), in.of(rank).narrow(2, part, count));
      });
    }
    swap(group, in, out);
  }
  if (B == 1) return out.all.reshape_view(Shape{B, size * t, w});
  const Tensor y = Tensor::empty(Shape{B, size * t, w}, x.dtype());
  for (int64_t rank = 0; rank < size; ++rank) {
    copy(out.of(rank), y.view().narrow(1, rank * t, t));
  }
  return y;
}

// [B, S t, w] -> [B, t, W]
Tensor tokens_of_all(comm::World& group, const Tensor& x, const Sections& sections) {
  const int64_t size = group.size(), B = x.dim(0), t = x.dim(1) / size, w = x.dim(2);
  const Shape block{B, t, w};
  const Blocks out = Blocks::empty(size, block, x.dtype());
  if (B == 1 && x.is_contiguous()) {
    swap(group, {block, x}, out);
  } else {
    const Blocks in = Blocks::empty(size, block, x.dtype());
    for (int64_t rank = 0; rank < size; ++rank) {
      copy(x.view().narrow(1, rank * t, t), in.of(rank));
    }
    swap(group, in, out);
  }
  const Tensor y = Tensor::empty(Shape{B, t, w * size}, x.dtype());
  for (int64_t rank = 0; rank < size; ++rank) {
    for_each_section(sections, rank, size, [&](int64_t whole, int64_t part, int64_t count) {
      copy(out.of(rank).narrow(2, part, count), y.view().narrow(2, whole, count));
    });
  }
  return y;
}

Tensor exchanged(comm::World& group, const Tensor& x, const Sections& sections,
                 Direction direction) {
  return direction == Direction::to_heads ? heads_of_all(group, x, sections)
                                          : tokens_of_all(group, x, sections);
}

class ExchangeNode final : public autograd::Node {
 public:
  ExchangeNode(comm::World& group, Sections sections, Direction direction)
      : group_(group), sections_(std::move(sections)), direction_(direction) {}
  std::string_view name() const override { return "exchange between ranks"; }
  void backward(autograd::BackwardPass& pass) override {
    const Direction back =
        direction_ == Direction::to_heads ? Direction::to_tokens : Direction::to_heads;
    pass.give(0, exchanged(group_, pass.take_gradient(0), sections_, back));
  }

 private:
  comm::World& group_;
  Sections sections_;
  Direction direction_;
};

std::vector<Runs> runs_of_all(const nn::SequenceRanks& ranks, int64_t T) {
  std::vector<Runs> runs;
  for (int rank = 0; rank < ranks.size(); ++rank) runs.push_back(nn::token_runs(ranks, rank, T));
  return runs;
}

class GatherNode final : public autograd::Node {
 public:
  GatherNode(comm::World& group, std::vector<Runs> runs) : group_(group), runs_(std::move(runs)) {}
  std::string_view name() const override { return "tokens of all ranks"; }
  void backward(autograd::BackwardPass& pass) override {
    pass.give(0, sum_of_tokens(group_, pass.take_gradient(0), runs_, least_sequence_on(group_)));
  }

 private:
  comm::World& group_;
  std::vector<Runs> runs_;
};

class CommSequenceRanks final : public nn::SequenceRanks {
 public:
  CommSequenceRanks(comm::World& group, nn::SequenceExchange what) : group_(group), what_(what) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  nn::SequenceExchange exchange() const override { return what_; }

  Tensor to_heads(const Tensor& x, const Sections& sections) override {
    require(std::accumulate(sections.begin(), sections.end(), int64_t{0}) == x.dim(2),
            "sequence ranks: sections that do not add up to ", x.dim(2), " features");
    return swapped(x, sections, Direction::to_heads);
  }

  Tensor to_tokens(const Tensor& x) override {
    return swapped(x, {x.dim(2) * size()}, Direction::to_tokens);
  }

  Tensor of_all_tokens(const Tensor& x) override {
    const std::vector<Runs> runs = runs_of_all(*this, size() * x.dim(1));
    Tensor y = all_tokens(group_, x, runs, least_sequence_on(group_));
    if (autograd::needs_gradient(x)) {
      const auto node = autograd::make_node<GatherNode>(group_, runs);
      node->add_input(x);
      node->set_output(y);
    }
    return y;
  }

  Tensor attend_in_ring(const Tensor& q, const Tensor& k_and_v,
                        const autograd::AttentionOptions& how) override {
    return ring_attention(group_, *this, q, k_and_v, how);
  }

 private:
  Tensor swapped(const Tensor& x, const Sections& sections, Direction direction) {
    Tensor y = exchanged(group_, x, sections, direction);
    if (autograd::needs_gradient(x)) {
      const auto node = autograd::make_node<ExchangeNode>(group_, sections, direction);
      node->add_input(x);
      node->set_output(y);
    }
    return y;
  }

  comm::World& group_;
  const nn::SequenceExchange what_;
};

}  // namespace

std::unique_ptr<nn::SequenceRanks> make_sequence_ranks(comm::World& group,
                                                       nn::SequenceExchange what) {
  return std::make_unique<CommSequenceRanks>(group, what);
}

void share_sequence(nn::Model& model, nn::SequenceRanks* ranks) {
  auto* shares = nn::find_interface<nn::SharesSequence>(model);
  if (shares != nullptr) return shares->share_sequence(ranks);
  if (ranks == nullptr) return;
  throw ConfigError(str("zinc.mesh.sequence: ranks cannot share the sequences of a ",
                        model.model_type(),
                        "; decoders can, or derive the model from zinc::nn::SharesSequence "
                        "(nn/sequence_ranks.h), or take zinc.mesh.sequence 1"));
}

}  // namespace zinc::parallel
