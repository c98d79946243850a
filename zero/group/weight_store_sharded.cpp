// Every rank keeps its shards, on any tier. A group is gathered into an arena on the device while
// it is used.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/trace_span.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "zero/group/parameter_shards.h"
#include "zero/group/segment_collectives.h"
#include "zero/group/weight_store.h"
#include "zero/trace/step_trace.h"

namespace zinc::zero {
namespace {

// The state of a group's weights on this rank.
enum class Residence : uint8_t {
  sharded,    // the rank's shards only
  gathering,  // a collective that fills the arena is under way
  unsharded,  // the arena holds the whole group, for work on the compute stream
};

bool may_become(Residence from, Residence to) {
  switch (from) {
    case Residence::sharded:
      return to == Residence::gathering;
    case Residence::gathering:
      return to == Residence::unsharded;
    case Residence::unsharded:
      return to == Residence::sharded;
  }
  return false;
}

class ShardedWeights : public WeightStore {
 public:
  ShardedWeights(const std::vector<ShardGroup>& groups, comm::Communicator& communicator,
                 Context& context, const WeightStoreOptions& options)
      : WeightStore(groups, communicator, context, options,
                    options.parameters.tier != Tier::device),
        collectives_(communicator, context, {.bucket_numel = options.bucket_numel}),
        shards_(groups, communicator, context, options.parameters),
        states_(groups.size()) {
    for (const ShardGroup& group : groups_) make_buffers(group);
    slices_ = optimizer_.slices([this](const Slice& slice) {
      const ShardGroup& group = group_of(slice);
      const bool is_swapped = !is_persistent(slice.segment) && shards_.tier_of(group) == Tier::nvme;
      return is_swapped ? View() : kept_view(group, group.segment(slice.segment), slice.range);
    });
  }

  void load(const std::vector<ReadValues>& planes, const HasValues& has) override {
    WeightStore::load(planes, has);
    shards_.settle();
  }

  void begin_pass(bool goes_on) override {
    if (!goes_on) wanted_.clear();
    shards_.settle();
    optimizer_.settle();
  }

  void gather(int index, TraceKind kind) override {
    const ShardGroup& group = groups_[static_cast<size_t>(index)];
    if (state_of(group).residence == Residence::sharded) {
      gather(group, kind);
    }
    read_ahead();
  }

  void gather_for_use(int index) override {
    const ShardGroup& group = groups_[static_cast<size_t>(index)];
    if (state_of(group).residence != Residence::sharded) return;
    make_room(group);
    gather(group, TraceKind::gather);
  }

  void release(int index) noexcept override {
    const ShardGroup& group = groups_[static_cast<size_t>(index)];
    GroupState& state = state_of(group);
    if (state.pins > 0 || state.residence == Residence::sharded) return;
    if (state.residence == Residence::gathering) {
      abandon(group);
    } else {
      reshard(group);
    }
  }

  void read(int group) override {
    if (!offloads()) return;
    wanted_.push_back(group);
    read_ahead();
  }

  ConstView pin(ParameterIndex parameter) override {
    const ShardGroup& group = group_of(parameter);
    const Placement& placement = at(parameter);
    GroupState& state = state_of(group);
    if (state.residence == Residence::gathering) {
      state.work.wait_on(context_.compute());
      become(state, Residence::unsharded);
    }
    bug_check(state.residence == Residence::unsharded, "group ", group.name(),
              " is used before it was gathered");
    const ConstView values =
        begin_use(parameter, arena_view(group, placement.segment, placement.range()));
    // Last: no unpin() follows a pin() that throws.
    ++state.pins;
    ++pinned_;
    return values;
  }

  void unpin(ParameterIndex parameter) noexcept override {
    end_use(parameter);
    --pinned_;
    --states_[static_cast<size_t>(parameter.group)].pins;
  }

  void end_passes() override {
    bug_check(pinned_ == 0, pinned_, " parameters are still in use at the end of a pass");
    for (const ShardGroup& group : groups_) {
      GroupState& state = state_of(group);
      if (state.residence == Residence::gathering) {
        state.work.wait_on(context_.compute());
        become(state, Residence::unsharded);
      }
      if (state.residence == Residence::unsharded) reshard(group);
    }
    bug_check(live_numel_ == 0, live_numel_, " elements are counted as gathered when none are");
  }

  void take_updated(int group, Range range, const ConstView& values, StreamRef stream) override {
    shards_.take_updated(groups_[static_cast<size_t>(group)], range, values, stream);
  }

  void expect_updates(bool skipped) override {
    if (!skipped && options_.parameters.updates_during_passes) shards_.expect_updates();
    for (GroupState& state : states_) state.is_outdated = true;
  }

  // Gathers the persistent segments. Returns an event that has happened if there are none.
  Event publish(int index, const std::vector<Event>& updated) override {
    const ShardGroup& group = groups_[static_cast<size_t>(index)];
    GroupState& state = state_of(group);
    state.is_outdated = false;
    state.updated = updated;
    if (persistent_numel(group) == 0) return {};
    const StreamRef stream = context_.stream(StreamRole::gather);
    stream->wait(context_.compute()->record());
    for (const Event& event : updated) stream->wait(event);
    const TraceSpan span(context_.trace(), TraceKind::publish, stream, group.name(),
                         sent_bytes(persistent_numel(group) * size_of(group.dtype())));
    for (const Segment& segment : group.segments()) {
      if (!is_persistent(segment.kind)) continue;
      collectives_.all_gather(kept_view(group, segment, shards_.own(segment)),
                              kept_view(group, segment, segment.range()), stream);
    }
    return stream->record();
  }

  void settle_updates() override { shards_.finish_update(); }

  void read_master(ParameterIndex parameter, View out) override {
    optimizer_.read(group_of(parameter), at(parameter), masters(), out);
    forget_decoded();
  }

  SwapTraffic swap_traffic() const override { return shards_.traffic(); }

 private:
  struct GroupState {
    Block persistent;  // [sum of sizes] of the persistent segments, whole
    Block arena;       // [sum of sizes] of the segments that are gathered; while not sharded
    Residence residence = Residence::sharded;
    comm::Work work;
    int pins = 0;
    bool is_outdated = false;    // the group's update is not published yet
    std::vector<Event> updated;  // the group's update: a gather waits for it
  };

  GroupState& state_of(const ShardGroup& group) {
    return states_[static_cast<size_t>(group.index())];
  }
  const GroupState& state_of(const ShardGroup& group) const {
    return states_[static_cast<size_t>(group.index())];
  }

  static void become(GroupState& state, Residence to) {
    bug_check(may_become(state.residence, to), "a shard group cannot go from state ",
              static_cast<int>(state.residence), " to ", static_cast<int>(to));
    state.residence = to;
  }

  // Bytes before `segment`, of the group's persistent segments or of all others, as `segment` is.
  static int64_t bytes_before(const ShardGroup& group, const Segment& segment) {
    int64_t bytes = 0;
    for (const Segment& other : group.segments()) {
      if (other.kind == segment.kind) break;
      if (is_persistent(other.kind) != is_persistent(segment.kind)) continue;
      bytes += other.encoding.bytes_of(other.size);
    }
    return bytes;
  }
  static int64_t persistent_numel(const ShardGroup& group) {
    return group.numel() - group.gathered_numel();
  }

  // A range of `segment` in a block that holds all persistent segments of the group, or all others.
  View view_of(const ShardGroup& group, const Block& block, const Segment& segment,
               Range range) const {
    return segment.encoding.view(block, bytes_before(group, segment), range.from(segment.offset),
                                 context_.device());
  }

  bool offloads() const { return options_.parameters.tier != Tier::device; }

  // A range of what this rank keeps of a segment: a persistent segment whole, of others its own
  // shard. A shard is in its own tier, and not in swap space.
  View kept_view(const ShardGroup& group, const Segment& segment, Range range) const {
    if (!is_persistent(segment.kind)) return shards_.view(group, segment, range);
    return view_of(group, state_of(group).persistent, segment, range);
  }

  View master_view(const Slice& slice) override {
    if (is_trained(slice.segment) && optimizer_.has_master(slice)) return optimizer_.master(slice);
    const ShardGroup& group = group_of(slice);
    const Segment& segment = group.segment(slice.segment);
    const Range& range = slice.range;
    if (is_persistent(segment.kind)) return kept_view(group, segment, range);
    const View stored = shards_.read(group, segment, range);
    if (!is_quantized(segment.kind)) return stored;
    // From swap space fewer values may come than were asked for.
    const int64_t there = stored.numel() / segment.encoding.chunk_numel * kNormChunk;
    return decoded(group, {range.begin, std::min(range.end, range.begin + there)}, stored);
  }

  // A range of a whole segment, while the group is gathered.
  View arena_view(const ShardGroup& group, SegmentKind kind, Range range) const {
    const Segment& segment = group.segment(kind);
    if (is_persistent(kind)) return kept_view(group, segment, range);
    return view_of(group, state_of(group).arena, segment, range);
  }

  void make_buffers(const ShardGroup& group) {
    const int64_t numel = persistent_numel(group);
    if (numel == 0) return;
    Block& block = state_of(group).persistent;
    block = context_.allocate(numel * size_of(group.dtype()), Label::parameters);
    kernels::fill({.y = View(block.data(), group.dtype(), Shape{numel}, context_.device())},
                  context_.compute());
  }

  std::vector<Range> kept_ranges(const ShardGroup& group,
                                 const Placement& placement) const override {
    if (is_persistent(placement.segment)) return {placement.range()};
    const Segment& segment = group.segment(placement.segment);
    return {intersect(placement.range(), shards_.own(segment))};
  }

  void store_model(const ShardGroup& group, const Segment& segment, Range range,
                   const ConstView& values) override {
    if (is_persistent(segment.kind)) {
      kernels::copy({.x = values, .y = kept_view(group, segment, range)}, context_.compute());
    } else {
      shards_.write(group, segment, range, values);
    }
  }

  void come_to_rest() override { end_passes(); }

  // The bytes that a rank sends when `bytes` are gathered.
  int64_t sent_bytes(int64_t bytes) const {
    const int64_t world = communicator_.size();
    return bytes / world * (world - 1);
  }

  StreamRef gather_stream() {
    if (!options_.overlap) return context_.compute();
    const StreamRef stream = context_.stream(StreamRole::gather);
    // The arena's memory may still be in use by work on the compute stream.
    stream->wait(context_.compute()->record());
    return stream;
  }

  // The rank's shards from their tier to their place in the arena.
  void bring(const ShardGroup& group, StreamRef stream) {
    const StreamRef copies = options_.overlap ? context_.stream(StreamRole::copy_in) : stream;
    copies->wait(context_.compute()->record());  // as in gather_stream()
    for (const Event& event : state_of(group).updated) copies->wait(event);
    {
      const TraceSpan span(context_.trace(), TraceKind::swap_in, copies, group.name(), 0);
      shards_.bring(
          group,
          [&](const Segment& segment) {
            return arena_view(group, segment.kind, shards_.own(segment));
          },
          copies);
    }
    stream->wait(copies->record());
  }

  // Starts reads for the groups that were asked for and are not gathered yet.
  void read_ahead() {
    if (wanted_.empty()) return;
    std::erase_if(wanted_, [this](int group) {
      return states_[static_cast<size_t>(group)].residence != Residence::sharded;
    });
    shards_.read_ahead(wanted_);
  }

  void gather(const ShardGroup& group, TraceKind kind) {
    GroupState& state = state_of(group);
    bug_check(!state.is_outdated, "group ", group.name(), " is gathered before its update");
    const int64_t numel = group.gathered_numel();
    state.arena = context_.allocate(group.gathered_bytes(), Label::parameters);
    become(state, Residence::gathering);
    live_numel_ += numel;
    try {
      fill(group, kind);
    } catch (...) {
      abandon(group);
      throw;
    }
    trace_memory(context_);
  }

  void fill(const ShardGroup& group, TraceKind kind) {
    GroupState& state = state_of(group);
    const StreamRef stream = gather_stream();
    for (const Event& event : state.updated) stream->wait(event);
    if (offloads()) bring(group, stream);
    state.updated.clear();
    const TraceSpan span(context_.trace(), kind, stream, group.name(),
                         sent_bytes(group.gathered_bytes()));
    for (const Segment& segment : group.segments()) {
      if (is_persistent(segment.kind)) continue;
      const Range own = shards_.own(segment);
      collectives_.all_gather(
          offloads() ? arena_view(group, segment.kind, own) : kept_view(group, segment, own),
          arena_view(group, segment.kind, segment.range()), stream);
    }
    state.work = comm::Work(stream->record());
  }

  // After a gather that failed or is not needed: the work it issued ends before the arena's memory
  // is used again.
  void abandon(const ShardGroup& group) noexcept {
    for (const StreamRole role : {StreamRole::copy_in, StreamRole::gather}) {
      try {
        context_.compute()->wait(context_.stream(role)->record());
      } catch (...) {
        // The stream has failed. Its next use reports the error.
      }
    }
    reshard(group);
  }

  void reshard(const ShardGroup& group) noexcept {
    GroupState& state = state_of(group);
    state.residence = Residence::sharded;  // callers have checked where from
    state.work = {};
    live_numel_ -= group.gathered_numel();
    trace_mark(context_.trace(), TraceKind::release, group.name(), state.arena.bytes());
    state.arena.reset();
    trace_memory(context_);
  }

  // For a use that no step program predicts: frees groups that nothing uses now, until `group` fits
  // under the bound or no such group is left.
  void make_room(const ShardGroup& group) {
    for (const ShardGroup& other : groups_) {
      if (live_numel_ + group.gathered_numel() <= options_.max_live_numel) return;
      const GroupState& state = state_of(other);
      if (state.residence == Residence::unsharded && state.pins == 0) reshard(other);
    }
  }

  SegmentCollectives collectives_;
  ParameterShards shards_;
  std::vector<GroupState> states_;
  std::vector<int> wanted_;  // groups, in the order of read()
  int64_t live_numel_ = 0;   // elements of arenas that are there or under way
  int64_t pinned_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_sharded_weights(const std::vector<ShardGroup>& groups,
                                                  comm::Communicator& communicator,
                                                  Context& context,
                                                  const WeightStoreOptions& options) {
  return std::make_unique<ShardedWeights>(groups, communicator, context, options);
}

}  // namespace zinc::zero
