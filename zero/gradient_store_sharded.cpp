// Every micro-batch is reduced at once into the sums of a rank's own shards.
#include <deque>
#include <utility>

#include "core/error.h"
#include "zero/group_gradients.h"
#include "zero/trace_span.h"

namespace zinc::zero {
namespace {

// Reductions whose source buffer may wait to be freed while backward goes on.
constexpr size_t kMaxReductionsInFlight = 2;

class ShardedSums : public GroupGradients {
 public:
  using GroupGradients::GroupGradients;

  void finish() override {
    while (!in_flight_.empty()) retire_oldest();
    if (!options().replicate) return;
    for (const int index : order()) gather(groups()[static_cast<size_t>(index)]);
    for (GroupState& state : states()) {
      state.work.wait_on(context().compute());
      state.work = {};
    }
  }

  ConstView gradient(int group, Range range) override {
    GroupState& state = states()[static_cast<size_t>(group)];
    if (options().replicate) return part(state.written, policy().kept, range);
    const ShardGroup& of = groups()[static_cast<size_t>(group)];
    for (const Segment& segment : of.segments()) {
      const Range shard = segment.shard(communicator().rank(), communicator().size());
      const Range inside = intersect(shard, range);
      if (inside.empty()) continue;
      bug_check(inside == range, "a gradient beyond the rank's shard was asked for");
      const int64_t offset = shard_offset(segment) + range.begin - shard.begin;
      return part(state.kept, policy().kept, {offset, offset + range.size()});
    }
    throw InternalError(concat("no trained shard of group ", of.name(), " holds [", range.begin,
                               ", ", range.end, ")"));
  }

  void discard() override {
    for (GroupState& state : states()) {
      state.written.reset();
      state.kept.reset();
    }
  }

 protected:
  bool keeps_written() const override { return false; }
  bool reduces_now() const override { return true; }

  void reduce(const ShardGroup& group, GroupState& state) override {
    if (!state.kept) state.kept = take(group.trained_numel() / world(), policy().kept);
    const StreamRef stream = begin_reduction();
    const TraceSpan span(context().trace(), TraceKind::reduce, stream, group.name(),
                         sent_bytes(group, policy().wire));
    const View written = whole(state.written, policy().written);
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      state.work = collectives().reduce_scatter(written.narrow(0, segment.offset, segment.size),
                                                shard_of(state, segment), !is_first(), stream);
    }
    in_flight_.emplace_back(state.work, std::exchange(state.written, Block()));
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

  void retire_oldest() {
    in_flight_.front().first.wait_on(context().compute());
    in_flight_.pop_front();
  }

  void gather(const ShardGroup& group) {
    if (group.num_trained_parameters() == 0) return;
    GroupState& state = state_of(group);
    state.written = take(group.trained_numel(), policy().kept);
    const StreamRef stream = begin_reduction();
    const TraceSpan span(context().trace(), TraceKind::reduce, stream, group.name(),
                         sent_bytes(group, policy().kept));
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      state.work = collectives().all_gather(
          shard_of(state, segment), part(state.written, policy().kept, segment.range()), stream);
    }
    end_reduction();
  }

  std::deque<std::pair<comm::Work, Block>> in_flight_;
};

}  // namespace

std::unique_ptr<GradientStore> make_sharded_sums(const std::vector<ShardGroup>& groups,
                                                 const StepSchedule& schedule,
                                                 comm::Communicator& communicator, Context& context,
                                                 PhaseClock& clock,
                                                 const GradientStoreOptions& options) {
  return std::make_unique<ShardedSums>(groups, schedule, communicator, context, clock, options);
}

}  // namespace zinc::zero
