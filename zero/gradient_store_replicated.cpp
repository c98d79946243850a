// Whole gradients on every rank. Buffers are taken when backward first needs them and given back
// after the step, so that gradients and activations share memory.
#include <algorithm>
#include <deque>
#include <utility>

#include "core/error.h"
#include "kernels/accumulate.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "kernels/scale.h"
#include "zero/gradient_store.h"

namespace zinc::zero {
namespace {

// Reductions whose source buffer may wait to be freed.
constexpr size_t kMaxReductionsInFlight = 2;

class ReplicatedGradients : public GradientStore {
 public:
  ReplicatedGradients(const std::vector<ShardGroup>& groups, const StepSchedule& schedule,
                      comm::Communicator& communicator, Context& context,
                      const GradientStoreOptions& options)
      : groups_(groups),
        order_(schedule.reduce_order()),
        communicator_(communicator),
        context_(context),
        options_(options),
        policy_(options.policy),
        states_(groups.size()) {
    for (size_t i = 0; i < groups.size(); ++i) {
      states_[i].in_step.assign(groups[i].placements().size(), false);
      states_[i].in_micro_step.assign(groups[i].placements().size(), false);
    }
  }

  void begin_micro_step(int64_t index, int64_t count) override {
    first_ = index == 0;
    last_ = index + 1 == count;
    next_in_order_ = 0;
    for (GroupState& state : states_) {
      state.done = 0;
      state.complete = false;
      state.in_micro_step.assign(state.in_micro_step.size(), false);
      if (first_) state.in_step.assign(state.in_step.size(), false);
    }
  }

  autograd::GradientTarget target(ParameterIndex parameter) override {
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    GroupState& state = states_[static_cast<size_t>(parameter.group)];
    const auto position = static_cast<size_t>(parameter.position);
    const Placement& placement = group.placements()[position];
    Block& block = policy_.in_place() ? state.kept : state.written;
    if (!block) {
      block = take(group.trained_numel(), policy_.written, Label::gradients, context_.compute());
      fill_gaps(group, block);
    }
    const bool seen = policy_.in_place() ? state.in_step[position] : state.in_micro_step[position];
    state.in_step[position] = true;
    state.in_micro_step[position] = true;
    return {
        .view =
            part(block, policy_.written, placement.range()).reshape(placement.parameter->shape()),
        .accumulate = seen};
  }

  void gradient_done(ParameterIndex parameter) override {
    GroupState& state = states_[static_cast<size_t>(parameter.group)];
    ++state.done;
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    if (state.done == group.num_trained_parameters()) complete(group);
  }

  void end_micro_step() override {
    for (const int index : order_) {
      if (!states_[static_cast<size_t>(index)].complete) {
        complete(groups_[static_cast<size_t>(index)]);
      }
    }
  }

  void finish() override {
    if (policy_.schedule == ReduceSchedule::micro_step) {
      for (const int index : order_) gather_sums(groups_[static_cast<size_t>(index)]);
    }
    for (GroupState& state : states_) {
      state.work.wait_on(context_.compute());
      state.work = {};
    }
    in_flight_.clear();
  }

  ConstView gradient(int group, Range range) override {
    GroupState& state = states_[static_cast<size_t>(group)];
    bug_check(static_cast<bool>(state.kept), "the gradient of group ", group, " is not there");
    return part(state.kept, policy_.kept, range);
  }

  void discard() override {
    for (GroupState& state : states_) {
      state.kept.reset();
      state.written.reset();
    }
  }

 private:
  struct GroupState {
    Block kept;     // [trained_numel] policy.kept
    Block written;  // [trained_numel] policy.written, during one micro-step; unused where in place
    std::vector<bool> in_step;        // by position: has a gradient in this step
    std::vector<bool> in_micro_step;  // in this micro-step
    int done = 0;
    bool complete = false;
    comm::Work work;
  };
  struct InFlight {
    comm::Work work;
    Block source;
  };

  Block take(int64_t numel, DType dtype, Label label, StreamRef home) {
    return context_.allocator().allocate(numel * size_of(dtype), Tier::device, label, home);
  }

  View whole(const Block& block, DType dtype, int64_t numel) const {
    return {block.data(), dtype, Shape{numel}, context_.device()};
  }

  View part(const Block& block, DType dtype, Range range) const {
    return whole(block, dtype, block.bytes() / size_of(dtype)).narrow(0, range.begin, range.size());
  }

  void fill_gaps(const ShardGroup& group, const Block& block) {
    for (const Range& gap : group.trained_gaps()) {
      kernels::fill({.y = part(block, policy_.written, gap)}, context_.compute());
    }
  }

  // All gradients of the group that this micro-step will bring are there.
  void complete(const ShardGroup& group) {
    GroupState& state = states_[static_cast<size_t>(group.index())];
    state.complete = true;
    if (group.num_trained_parameters() == 0) return;
    zero_unused(group, state);
    if (!policy_.in_place() && policy_.schedule == ReduceSchedule::boundary) {
      if (!state.kept) {
        state.kept =
            take(group.trained_numel(), policy_.kept, Label::gradients, context_.compute());
      }
      kernels::accumulate({.x = whole(state.written, policy_.written, group.trained_numel()),
                           .accumulator = whole(state.kept, policy_.kept, group.trained_numel()),
                           .overwrite = first_},
                          context_.compute());
      state.written.reset();
    }
    if (last_ || policy_.schedule == ReduceSchedule::micro_step) issue_in_order();
  }

  // A parameter that took no part counts as zero.
  void zero_unused(const ShardGroup& group, GroupState& state) {
    if (policy_.in_place() && !last_) return;
    const std::vector<bool>& seen = policy_.in_place() ? state.in_step : state.in_micro_step;
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] || !is_trained(group.placements()[i].segment)) continue;
      const auto unused = target({.group = group.index(), .position = static_cast<int>(i)});
      kernels::fill({.y = unused.view}, context_.compute());
    }
  }

  // Collectives follow the recorded order, whatever the order of completion on this rank.
  void issue_in_order() {
    while (next_in_order_ < order_.size()) {
      const int index = order_[next_in_order_];
      if (!states_[static_cast<size_t>(index)].complete) return;
      const ShardGroup& group = groups_[static_cast<size_t>(index)];
      ++next_in_order_;
      if (policy_.schedule == ReduceSchedule::micro_step) {
        scatter_sums(group);
      } else {
        reduce_all(group);
      }
    }
  }

  // Pieces of [0, trained_numel) of at most the bucket's size, each a multiple of the world size.
  std::vector<Range> buckets(const ShardGroup& group) const {
    const int64_t unit = communicator_.size() * kShardUnit;
    const int64_t step = std::max(options_.bucket_numel / unit, int64_t{1}) * unit;
    std::vector<Range> pieces;
    for (int64_t begin = 0; begin < group.trained_numel(); begin += step) {
      pieces.push_back({begin, std::min(begin + step, group.trained_numel())});
    }
    return pieces;
  }

  StreamRef begin_reduction() {
    const StreamRef stream = context_.stream(StreamRole::reduce);
    stream->wait(context_.compute()->record());
    return stream;
  }

  void end_reduction(GroupState& state) {
    if (!options_.overlap) state.work.wait_on(context_.compute());
  }

  // The bucket in the wire's dtype: the source itself, or a converted and pre-divided copy of it.
  View to_wire(const View& source, Block& room, StreamRef stream) {
    if (source.dtype() == policy_.wire && options_.wire_divisor == 1.0) return source;
    room = take(source.numel(), policy_.wire, Label::communication, stream);
    const View wire = whole(room, policy_.wire, source.numel());
    kernels::copy({.x = source, .y = wire}, stream);
    if (options_.wire_divisor != 1.0) {
      kernels::scale({.x = wire, .factor = 1.0 / options_.wire_divisor, .y = wire}, stream);
    }
    return wire;
  }

  View workspace(comm::Collective collective, const View& view, Block& room, StreamRef stream) {
    const int64_t bytes = communicator_.workspace_bytes(collective, view.bytes(), view.dtype());
    room = context_.allocator().allocate(bytes, Tier::device, Label::communication, stream);
    return {room.data(), DType::u8, Shape{bytes}, context_.device()};
  }

  void reduce_all(const ShardGroup& group) {
    if (group.num_trained_parameters() == 0) return;
    GroupState& state = states_[static_cast<size_t>(group.index())];
    const StreamRef stream = begin_reduction();
    for (const Range& bucket : buckets(group)) {
      const View kept = part(state.kept, policy_.kept, bucket);
      Block wire_room;
      Block work_room;
      const View wire = to_wire(kept, wire_room, stream);
      const View room = workspace(comm::Collective::all_reduce, wire, work_room, stream);
      state.work = communicator_.all_reduce({.inout = wire, .workspace = room}, stream);
      if (wire.data() != kept.data()) {
        kernels::copy({.x = wire, .y = kept}, stream);
        state.work = comm::Work(stream->record());
      }
    }
    end_reduction(state);
  }

  // Adds the sum over ranks of this micro-step to the rank's own part of every bucket of `kept`.
  void scatter_sums(const ShardGroup& group) {
    if (group.num_trained_parameters() == 0) return;
    GroupState& state = states_[static_cast<size_t>(group.index())];
    if (!state.kept) {
      state.kept = take(group.trained_numel(), policy_.kept, Label::gradients, context_.compute());
    }
    const StreamRef stream = begin_reduction();
    for (const Range& bucket : buckets(group)) {
      Block wire_room;
      Block work_room;
      const View wire = to_wire(part(state.written, policy_.written, bucket), wire_room, stream);
      const View room = workspace(comm::Collective::reduce_scatter, wire, work_room, stream);
      state.work = communicator_.reduce_scatter({.in = wire,
                                                 .out = part(state.kept, policy_.kept, own(bucket)),
                                                 .accumulate = !first_,
                                                 .workspace = room},
                                                stream);
    }
    end_reduction(state);
    in_flight_.push_back({state.work, std::exchange(state.written, Block())});
    while (in_flight_.size() > kMaxReductionsInFlight) retire_oldest();
  }

  void retire_oldest() {
    in_flight_.front().work.wait_on(context_.compute());
    in_flight_.pop_front();
  }

  Range own(const Range& bucket) const {
    const int64_t length = bucket.size() / communicator_.size();
    const int64_t begin = bucket.begin + communicator_.rank() * length;
    return {begin, begin + length};
  }

  void gather_sums(const ShardGroup& group) {
    if (group.num_trained_parameters() == 0) return;
    GroupState& state = states_[static_cast<size_t>(group.index())];
    while (!in_flight_.empty()) retire_oldest();
    const StreamRef stream = begin_reduction();
    for (const Range& bucket : buckets(group)) {
      state.work = communicator_.all_gather({.shard = part(state.kept, policy_.kept, own(bucket)),
                                             .out = part(state.kept, policy_.kept, bucket)},
                                            stream);
    }
  }

  const std::vector<ShardGroup>& groups_;
  const std::vector<int> order_;
  comm::Communicator& communicator_;
  Context& context_;
  const GradientStoreOptions options_;
  const GradientPolicy policy_;
  std::vector<GroupState> states_;
  std::deque<InFlight> in_flight_;
  size_t next_in_order_ = 0;
  bool first_ = true;
  bool last_ = true;
};

}  // namespace

std::unique_ptr<GradientStore> make_replicated_gradients(const std::vector<ShardGroup>& groups,
                                                         const StepSchedule& schedule,
                                                         comm::Communicator& communicator,
                                                         Context& context,
                                                         const GradientStoreOptions& options) {
  return std::make_unique<ReplicatedGradients>(groups, schedule, communicator, context, options);
}

}  // namespace zinc::zero
