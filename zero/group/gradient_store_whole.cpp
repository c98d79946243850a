// Every rank keeps whole sums over its micro-batches. Ranks reduce once per step.
#include "core/error.h"
#include "core/trace_span.h"
#include "kernels/accumulate.h"
#include "zero/group/gradient_store.h"

namespace zinc::zero {
namespace {

class WholeSums : public GradientStore {
 public:
  using GradientStore::GradientStore;

  void finish() override {
    for (const ShardGroup& group : groups()) {
      GroupState& state = state_of(group);
      state.work.wait_on(context().compute());
      state.work = {};
      if (leaves_device(group) && !keeps_on_device(group)) sums(state).reset();
    }
    await_swap();
  }

  ConstView gradient(int group, Range range) override {
    const ShardGroup& of = groups()[static_cast<size_t>(group)];
    if (leaves_device(of)) {
      const StateSplit::Piece piece = piece_of(of, range);
      if (piece.tier != Tier::device) return host_gradient(of, piece);
    }
    return on_device(group, range);
  }

  View on_device(int group, Range range) override {
    GroupState& state = states()[static_cast<size_t>(group)];
    bug_check(static_cast<bool>(sums(state)), "the gradient of group ", group, " is not there");
    return part(sums(state), policy().kept, range);
  }

 protected:
  void clear() override {
    if (options().stays) return;
    for (GroupState& state : states()) {
      now(state).written.reset();
      state.kept.reset();
    }
  }

  bool keeps_written() const override { return policy().written == policy().kept; }

  void collect(const ShardGroup& group, GroupState& state) override {
    if (keeps_written()) return;
    if (!state.kept) state.kept = take(group.trained_numel(), policy().kept);
    kernels::accumulate({.x = whole(now(state).written, policy().written),
                         .accumulator = whole(state.kept, policy().kept),
                         .overwrite = is_first()},
                        context().compute());
    now(state).written.reset();
  }

  void reduce_group(const ShardGroup& group, GroupState& state) override {
    const StreamRef stream = begin_reduction();
    const TraceSpan span(context().trace(), TraceKind::reduce, stream, group.name(),
                         (options().replicate ? 2 : 1) * sent_bytes(group, policy().wire));
    const View values = whole(sums(state), policy().kept);
    if (options().replicate) {
      state.work = collectives().all_reduce(values, stream);
      return;
    }
    const int rank = communicator().rank();
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      const Range shard = segment.shard(rank, communicator().size());
      state.work =
          collectives().reduce_scatter(values.narrow(0, segment.offset, segment.size),
                                       values.narrow(0, shard.begin, shard.size()), false, stream);
    }
    if (leaves_device(group)) {
      send_off(group, state, [&](const Segment& segment) {
        const Range shard = segment.shard(rank, communicator().size());
        return values.narrow(0, shard.begin, shard.size());
      });
    }
  }

 private:
  Block& sums(GroupState& state) { return keeps_written() ? now(state).written : state.kept; }
};

}  // namespace

std::unique_ptr<GradientStore> make_whole_sums(const std::vector<ShardGroup>& groups,
                                               comm::Communicator& communicator, Context& context,
                                               PhaseClock& clock,
                                               const GradientStoreOptions& options) {
  return std::make_unique<WholeSums>(groups, communicator, context, clock, options);
}

}  // namespace zinc::zero
