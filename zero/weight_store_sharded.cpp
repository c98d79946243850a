// Every rank keeps its shards, on any tier; a group is gathered into an arena of its own, on the
// device, while it is used.
#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/trace.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "zero/host_stream.h"
#include "zero/optimizer_shards.h"
#include "zero/parameter_shards.h"
#include "zero/segment_collectives.h"
#include "zero/trace_span.h"
#include "zero/use_forecast.h"
#include "zero/weight_loading.h"
#include "zero/weight_store.h"

namespace zinc::zero {
namespace {

// What is true of a group's weights on this rank.
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
  ShardedWeights(const std::vector<ShardGroup>& groups, const StepSchedule* schedule,
                 comm::Communicator& communicator, Context& context, const nn::WeightSource& source,
                 const WeightStoreOptions& options)
      : groups_(groups),
        communicator_(communicator),
        context_(context),
        options_(options),
        collectives_(communicator, context, {.bucket_numel = options.bucket_numel}),
        shards_(groups, communicator, context, options.parameters),
        optimizer_(groups, communicator, context, options.num_states, options.split,
                   options.swapped, offloads()),
        forecast_(groups, schedule),
        scheduled_(schedule != nullptr),
        states_(groups.size()) {
    for (const ShardGroup& group : groups_) {
      make_buffers(group);
      for (const Placement& placement : group.placements()) load(group, placement, source);
    }
    shards_.settle();
  }

  void begin(Phase phase) override {
    forecast_.begin(phase);
    shards_.settle();
    optimizer_.settle();
    read_ahead();
    prefetch();
  }

  ConstView pin(ParameterIndex parameter) override {
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    const Placement& placement = group.placements()[static_cast<size_t>(parameter.position)];
    GroupState& state = state_of(group);
    forecast_.advance(group.index());
    if (state.residence == Residence::sharded) {
      make_room(group);
      gather(group, TraceKind::gather);
    }
    read_ahead();
    prefetch();
    if (state.residence == Residence::gathering) {
      state.work.wait_on(context_.compute());
      become(state, Residence::unsharded);
    }
    // Last: no unpin() follows a pin() that throws.
    ++state.pins;
    ++pinned_;
    return arena_view(group, placement.segment, placement.range())
        .reshape(placement.parameter->shape());
  }

  void unpin(ParameterIndex parameter) noexcept override {
    --pinned_;
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    GroupState& state = state_of(group);
    if (--state.pins > 0 || !scheduled_) return;
    if (forecast_.distance(group.index()) > reuse_limit()) reshard(group);
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

  std::vector<UpdateSlice> slices() override { return optimizer_.slices(model_of_range()); }

  void take_updated(int group, Range range, const ConstView& values, StreamRef stream) override {
    shards_.take_updated(groups_[static_cast<size_t>(group)], range, values, stream);
  }

  void publish() override {
    shards_.finish_update();
    // The disk need not rest until the next forward pass.
    forecast_.begin(Phase::forward);
    read_ahead();
    context_.compute()->wait(publish(groups_, {}));
  }

  void expect_updates(bool skipped) override {
    if (!skipped) shards_.expect_updates();
    for (GroupState& state : states_) state.is_outdated = true;
  }

  Event publish_group(int group, const std::vector<Event>& updated) override {
    GroupState& state = states_[static_cast<size_t>(group)];
    state.is_outdated = false;
    state.updated = updated;
    return publish(std::span(groups_).subspan(static_cast<size_t>(group), 1), updated);
  }

  void settle_updates() override { shards_.finish_update(); }

  void read_master(ParameterIndex parameter, View out) override {
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    const Placement& placement = group.placements()[static_cast<size_t>(parameter.position)];
    optimizer_.read(
        group, placement,
        [this](const ShardGroup& of, const Segment& segment, Range range) {
          return master_view(of, segment, range);
        },
        out);
  }

  void read_own(ParameterIndex parameter, Range range, View out) override {
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    const Placement& placement = group.placements()[static_cast<size_t>(parameter.position)];
    const Segment& segment = group.segment(placement.segment);
    optimizer_.copy_own(
        group, segment, range,
        [this](const ShardGroup& of, const Segment& in, Range piece) {
          return master_view(of, in, piece);
        },
        out);
    context_.compute()->synchronize();
  }

  void read_state(ParameterIndex parameter, int state, View out) override {
    read_owned(
        parameter,
        [this, state](const ShardGroup& of, const Segment& segment, Range range) {
          return optimizer_.state(of, segment, state, range);
        },
        out);
  }

  SwapTraffic swap_traffic() const override { return shards_.traffic(); }

  void read_owned(ParameterIndex parameter, const OwnedValues& values, View out) override {
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    const Placement& placement = group.placements()[static_cast<size_t>(parameter.position)];
    require_trained(placement);
    optimizer_.read(group, placement, values, out);
  }

  void write_master(ParameterIndex parameter, ConstView values) override {
    end_passes();
    const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
    const Placement& placement = group.placements()[static_cast<size_t>(parameter.position)];
    for (const Range& range : kept_ranges(group, placement)) {
      if (range.empty()) continue;
      store(group, placement, range,
            values.narrow(0, range.begin - placement.offset, range.size()));
    }
    context_.compute()->synchronize();
  }

 private:
  struct GroupState {
    Block persistent;  // [sum of sizes] of the persistent segments, whole
    Block arena;       // [sum of sizes] of the segments that are gathered; while not sharded
    Residence residence = Residence::sharded;
    comm::Work work;
    int pins = 0;
    bool is_outdated = false;    // its update was not published yet
    std::vector<Event> updated;  // that a gather waits for
  };

  // An event that has happened where nothing is kept whole.
  Event publish(std::span<const ShardGroup> groups, const std::vector<Event>& updated) {
    const auto stays = [](const ShardGroup& group) { return numel_of(group, true) > 0; };
    if (std::none_of(groups.begin(), groups.end(), stays)) return {};
    const StreamRef stream = context_.stream(StreamRole::gather);
    stream->wait(context_.compute()->record());
    for (const Event& event : updated) stream->wait(event);
    for (const ShardGroup& group : groups) {
      if (!stays(group)) continue;
      const TraceSpan span(context_.trace(), TraceKind::publish, stream, group.name(),
                           sent_bytes(group, numel_of(group, true)));
      for (const Segment& segment : group.segments()) {
        if (!is_persistent(segment.kind)) continue;
        collectives_.all_gather(kept_view(group, segment, optimizer_.owned(segment)),
                                kept_view(group, segment, segment.range()), stream);
      }
    }
    return stream->record();
  }

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

  // Elements of the group's segments of one kind of keeping that lie before `segment`.
  static int64_t numel_before(const ShardGroup& group, const Segment& segment) {
    int64_t numel = 0;
    for (const Segment& other : group.segments()) {
      if (other.kind == segment.kind) break;
      if (is_persistent(other.kind) == is_persistent(segment.kind)) numel += other.size;
    }
    return numel;
  }
  static int64_t numel_of(const ShardGroup& group, bool persistent) {
    int64_t numel = 0;
    for (const Segment& segment : group.segments()) {
      if (is_persistent(segment.kind) == persistent) numel += segment.size;
    }
    return numel;
  }

  View view_of(const ShardGroup& group, const Block& block, int64_t offset, int64_t numel) const {
    const int64_t size = block.bytes() / size_of(group.dtype());
    return View(block.data(), group.dtype(), Shape{size}, context_.device())
        .narrow(0, offset, numel);
  }

  bool offloads() const { return options_.parameters.tier != Tier::device; }

  // A range of what this rank keeps of a segment: all of a persistent one, else its own shard; the
  // latter in its tier, not in swap space.
  View kept_view(const ShardGroup& group, const Segment& segment, Range range) const {
    if (!is_persistent(segment.kind)) return shards_.view(group, segment, range);
    return view_of(group, state_of(group).persistent,
                   numel_before(group, segment) + range.begin - segment.offset, range.size());
  }

  // What the optimizer works on, of an owned range in one tier; what the model has, of a frozen
  // one.
  View master_view(const ShardGroup& group, const Segment& segment, Range range) {
    const bool master = is_trained(segment.kind) && optimizer_.has_master(group, segment, range);
    if (master) return optimizer_.master(group, segment, range);
    if (is_persistent(segment.kind)) return kept_view(group, segment, range);
    return shards_.read(group, segment, range);
  }

  // A range of a whole segment, while it is there.
  View arena_view(const ShardGroup& group, SegmentKind kind, Range range) const {
    const Segment& segment = group.segment(kind);
    if (is_persistent(kind)) return kept_view(group, segment, range);
    return view_of(group, state_of(group).arena,
                   numel_before(group, segment) + range.begin - segment.offset, range.size());
  }

  ModelView model_of_range() const {
    return [this](const ShardGroup& group, const Segment& segment, Range range) {
      const bool is_swapped = !is_persistent(segment.kind) && shards_.tier_of(group) == Tier::nvme;
      return is_swapped ? View() : kept_view(group, segment, range);
    };
  }

  void make_buffers(const ShardGroup& group) {
    const int64_t numel = numel_of(group, true);
    if (numel == 0) return;
    Block& block = state_of(group).persistent;
    block = context_.allocate(numel * size_of(group.dtype()), Label::parameters);
    kernels::fill({.y = view_of(group, block, 0, numel)}, context_.compute());
  }

  // The parts of a parameter that this rank keeps in the model's dtype.
  std::vector<Range> kept_ranges(const ShardGroup& group, const Placement& placement) const {
    if (is_persistent(placement.segment)) return {placement.range()};
    const Segment& segment = group.segment(placement.segment);
    return {intersect(placement.range(), optimizer_.owned(segment))};
  }

  void store(const ShardGroup& group, const Placement& placement, Range range, ConstView values) {
    const Segment& segment = group.segment(placement.segment);
    if (is_persistent(segment.kind)) {
      kernels::copy({.x = values, .y = kept_view(group, segment, range)}, context_.compute());
    } else {
      shards_.write(group, segment, range, values);
    }
    if (!optimizer_.has_master(group) || !is_trained(placement.segment)) return;
    const Range owned = intersect(range, optimizer_.owned(segment));
    if (owned.empty()) return;
    optimizer_.write_master(group, segment, owned,
                            values.narrow(0, owned.begin - range.begin, owned.size()));
  }

  void load(const ShardGroup& group, const Placement& placement, const nn::WeightSource& source) {
    if (placement.range().empty()) return;
    for (const Range& range : kept_ranges(group, placement)) {
      load_range(context_, source, placement, range,
                 [&](Range piece, const View& values) { store(group, placement, piece, values); });
    }
  }

  // What a rank sends when `numel` elements of the group are gathered.
  int64_t sent_bytes(const ShardGroup& group, int64_t numel) const {
    const int64_t world = communicator_.size();
    return numel / world * (world - 1) * size_of(group.dtype());
  }

  StreamRef gather_stream() {
    if (!options_.overlap) return context_.compute();
    const StreamRef stream = context_.stream(StreamRole::gather);
    // The arena may be memory that work on the compute stream still uses.
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
            return arena_view(group, segment.kind, optimizer_.owned(segment));
          },
          copies);
    }
    stream->wait(copies->record());
  }

  void read_ahead() {
    if (!offloads() || !scheduled_) return;
    std::vector<int> wanted;
    for (const int group : forecast_.upcoming()) {
      if (states_[static_cast<size_t>(group)].residence == Residence::sharded) {
        wanted.push_back(group);
      }
    }
    shards_.read_ahead(wanted);
  }

  void gather(const ShardGroup& group, TraceKind kind) {
    GroupState& state = state_of(group);
    bug_check(!state.is_outdated, "group ", group.name(), " is gathered before its update");
    const int64_t numel = numel_of(group, false);
    state.arena = context_.allocate(numel * size_of(group.dtype()), Label::parameters);
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
                         sent_bytes(group, numel_of(group, false)));
    for (const Segment& segment : group.segments()) {
      if (is_persistent(segment.kind)) continue;
      const Range own = optimizer_.owned(segment);
      collectives_.all_gather(
          offloads() ? arena_view(group, segment.kind, own) : kept_view(group, segment, own),
          arena_view(group, segment.kind, segment.range()), stream);
    }
    state.work = comm::Work(stream->record());
  }

  // A gather that failed: what it issued is over before the arena's memory is used again.
  void abandon(const ShardGroup& group) noexcept {
    for (const StreamRole role : {StreamRole::copy_in, StreamRole::gather}) {
      try {
        context_.compute()->wait(context_.stream(role)->record());
      } catch (...) {
        // The stream has failed, and says so at its next use.
      }
    }
    reshard(group);
  }

  void reshard(const ShardGroup& group) noexcept {
    GroupState& state = state_of(group);
    state.residence = Residence::sharded;  // callers have checked where from
    state.work = {};
    live_numel_ -= numel_of(group, false);
    trace_mark(context_.trace(), TraceKind::release, group.name(), state.arena.bytes());
    state.arena.reset();
    trace_memory(context_);
  }

  int64_t reuse_limit() const {
    return live_numel_ > options_.max_live_numel ? 0 : options_.max_reuse_numel;
  }

  // Gives back groups that nothing uses now, the one with the farthest next use first, until
  // `group` fits under the bound or nothing is left to give.
  void make_room(const ShardGroup& group) {
    while (live_numel_ + numel_of(group, false) > options_.max_live_numel) {
      const ShardGroup* farthest = nullptr;
      for (const ShardGroup& other : groups_) {
        const GroupState& state = state_of(other);
        if (state.residence != Residence::unsharded || state.pins > 0) continue;
        if (farthest == nullptr ||
            forecast_.distance(other.index()) > forecast_.distance(farthest->index())) {
          farthest = &other;
        }
      }
      if (farthest == nullptr) return;
      reshard(*farthest);
    }
  }

  void prefetch() {
    if (!options_.overlap || !scheduled_) return;
    int64_t ahead = 0;
    for (const int index : forecast_.upcoming()) {
      const ShardGroup& group = groups_[static_cast<size_t>(index)];
      const int64_t numel = numel_of(group, false);
      const Residence residence = state_of(group).residence;
      if (residence == Residence::unsharded) continue;
      // How far an update has come differs between ranks; what is published does not.
      if (state_of(group).is_outdated) return;
      ahead += numel;
      if (ahead > options_.prefetch_numel) return;
      if (residence == Residence::gathering) continue;
      if (live_numel_ + numel > options_.max_live_numel) return;
      gather(group, TraceKind::prefetch);
    }
  }

  const std::vector<ShardGroup>& groups_;
  comm::Communicator& communicator_;
  Context& context_;
  const WeightStoreOptions options_;
  SegmentCollectives collectives_;
  ParameterShards shards_;
  OptimizerShards optimizer_;
  UseForecast forecast_;
  const bool scheduled_;
  std::vector<GroupState> states_;
  int64_t live_numel_ = 0;  // elements of arenas that are there or under way
  int64_t pinned_ = 0;
};

}  // namespace

std::unique_ptr<WeightStore> make_sharded_weights(const std::vector<ShardGroup>& groups,
                                                  const StepSchedule* schedule,
                                                  comm::Communicator& communicator,
                                                  Context& context, const nn::WeightSource& source,
                                                  const WeightStoreOptions& options) {
  return std::make_unique<ShardedWeights>(groups, schedule, communicator, context, source, options);
}

}  // namespace zinc::zero
