// The gradients of every micro-batch are reduced at once, into this rank's shards of the sums. A
// shard is one running sum, or the partial sums of a tree over all micro-batches of the step.
#include <deque>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/trace_span.h"
#include "kernels/accumulate.h"
#include "zero/group/gradient_store.h"

namespace zinc::zero {
namespace {

// So many reductions may hold their source buffers while backward goes on.
constexpr size_t kMaxReductionsInFlight = 2;

class ShardedSums : public GradientStore {
 public:
  using GradientStore::GradientStore;

  void begin_micro_steps(int64_t index, int64_t together, int64_t count,
                         const BackwardTurn& turn) override {
    // Buffers that stay are written again now.
    while (options().stays && !in_flight_.empty()) retire_oldest();
    GradientStore::begin_micro_steps(index, together, count, turn);
  }

  void finish() override {
    while (!in_flight_.empty()) retire_oldest();
    await_swap();
    if (!options().replicate) return;
    for (const ShardGroup& group : groups()) gather(group);
    for (GroupState& state : states()) {
      state.work.wait_on(context().compute());
      state.work = {};
    }
  }

  ConstView gradient(int group, Range range) override {
    if (options().replicate) return on_device(group, range);
    const ShardGroup& of = groups()[static_cast<size_t>(group)];
    const StateSplit::Piece piece = piece_of(of, range);
    if (piece.tier != Tier::device) return host_gradient(of, piece);
    return on_device(group, range);
  }

  View on_device(int group, Range range) override {
    GroupState& state = states()[static_cast<size_t>(group)];
    if (options().replicate) return part(now(state).written, policy().kept, range);
    const StateSplit::Piece piece = piece_of(groups()[static_cast<size_t>(group)], range);
    return part(state.kept, policy().kept, {piece.place, piece.place + range.size()});
  }

 protected:
  void clear() override {
    if (options().stays) return;
    for (GroupState& state : states()) {
      for (MicroStep& micro_step : state.micro_steps) micro_step.written.reset();
      state.kept.reset();
    }
    trees_.clear();
  }

  bool keeps_written() const override { return false; }

  void reduce_group(const ShardGroup& group, GroupState& state) override {
    const bool tree = policy().tree_over_micro_batches;
    const Shard shard = [&](const Segment& segment) { return shard_of(state, segment); };
    const bool returns = !state.kept && !tree && !is_first();
    if (!state.kept) state.kept = take(group.trained_numel() / world(), policy().kept);
    const StreamRef stream = begin_reduction();
    if (returns) bring_back(group, shard, stream);
    const TraceSpan span(context().trace(), TraceKind::reduce, stream, group.name(),
                         sent_bytes(group, policy().wire));
    const View written = whole(now(state).written, policy().written);
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      const bool accumulate = !tree && !is_first();
      state.work = collectives().reduce_scatter(written.narrow(0, segment.offset, segment.size),
                                                shard_of(state, segment), accumulate, stream);
    }
    in_flight_.emplace_back(state.work,
                            options().stays ? Block() : std::exchange(now(state).written, Block()));
    if (tree) add_to_tree(group, state, stream);
    if (leaves_device(group) && leaves_now()) {
      send_off(group, state, shard);
      in_flight_.emplace_back(
          state.work, keeps_on_device(group) ? Block() : std::exchange(state.kept, Block()));
    }
    while (in_flight_.size() > kMaxReductionsInFlight) retire_oldest();
  }

 private:
  int64_t world() { return communicator().size(); }
  // Shards of the trained segments lie one after the other in `kept`.
  int64_t shard_offset(const Segment& segment) { return segment.offset / world(); }

  View shard_of(const GroupState& state, const Segment& segment) {
    const int64_t begin = shard_offset(segment);
    return part(state.kept, policy().kept, {begin, begin + segment.size / world()});
  }

  // The sum of a complete subtree of micro-steps, left to right in Tree.
  struct Subtree {
    int64_t micro_steps = 1;
    Block sum;
  };
  using Tree = std::vector<Subtree>;

  // `kept` holds this micro-step's sum over the ranks. Two neighbouring subtrees of equal size are
  // merged. After the last micro-step the remaining subtrees are merged from the smallest up.
  void add_to_tree(const ShardGroup& group, GroupState& state, StreamRef stream) {
    trees_.resize(groups().size());
    Tree& tree = trees_[static_cast<size_t>(group.index())];
    tree.push_back({.sum = std::exchange(state.kept, Block())});
    const auto mergeable = [&] {
      const size_t n = tree.size();
      return n >= 2 && (is_last() || tree[n - 2].micro_steps == tree[n - 1].micro_steps);
    };
    while (mergeable()) {
      Subtree right = std::move(tree.back());
      tree.pop_back();
      Subtree& left = tree.back();
      kernels::accumulate(
          {.x = whole(right.sum, policy().kept), .accumulator = whole(left.sum, policy().kept)},
          stream);
      left.micro_steps += right.micro_steps;
      state.work = comm::Work(stream->record());
      in_flight_.emplace_back(state.work, std::move(right.sum));
    }
    if (is_last()) state.kept = std::move(tree.back().sum);
  }

  void retire_oldest() {
    in_flight_.front().first.wait_on(context().compute());
    in_flight_.pop_front();
  }

  void gather(const ShardGroup& group) {
    if (group.num_trained_parameters() == 0) return;
    GroupState& state = state_of(group);
    now(state).written = take(group.trained_numel(), policy().kept);
    const StreamRef stream = begin_reduction();
    const TraceSpan span(context().trace(), TraceKind::reduce, stream, group.name(),
                         sent_bytes(group, policy().kept));
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      state.work = collectives().all_gather(
          shard_of(state, segment), part(now(state).written, policy().kept, segment.range()),
          stream);
    }
    end_reduction();
  }

  std::deque<std::pair<comm::Work, Block>> in_flight_;
  std::vector<Tree> trees_;  // by group
};

}  // namespace

std::unique_ptr<GradientStore> make_sharded_sums(const std::vector<ShardGroup>& groups,
                                                 comm::Communicator& communicator, Context& context,
                                                 PhaseClock& clock,
                                                 const GradientStoreOptions& options) {
  return std::make_unique<ShardedSums>(groups, communicator, context, clock, options);
}

}  // namespace zinc::zero
