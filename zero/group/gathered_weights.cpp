#include "zero/group/gathered_weights.h"

#include <vector>

#include "core/error.h"
#include "core/trace_marks.h"
#include "core/trace_span.h"
#include "kernels/decode.h"

namespace zinc::zero {

ConstView DecodedUses::begin(const ShardGroup& group, ParameterIndex parameter,
                             const ConstView& stored) {
  const Placement& placement = group.placements()[static_cast<size_t>(parameter.position)];
  const Shape& shape = placement.parameter->shape();
  if (!is_quantized(placement.segment)) return stored.reshape(shape);
  Use& use = uses_[{parameter.group, parameter.position}];
  const bool is_first = use.count == 0;
  if (is_first) {
    use.values = context_.allocate(shape.numel() * size_of(group.dtype()), Label::parameters);
  }
  const View values(use.values.data(), group.dtype(), Shape{shape.numel()}, context_.device());
  if (is_first) {
    kernels::decode({.x = stored, .format = *group.block_format(), .y = values},
                    context_.compute());
  }
  ++use.count;
  return values.reshape(shape);
}

void DecodedUses::end(ParameterIndex parameter) noexcept {
  const auto use = uses_.find({parameter.group, parameter.position});
  if (use != uses_.end() && --use->second.count == 0) use->second.values.reset();
}

GatheredWeights::GatheredWeights(WeightStore& store, const ShardGroups& groups,
                                 comm::Communicator& communicator, Context& context,
                                 const GatheredWeightsOptions& options)
    : store_(store),
      groups_(groups),
      communicator_(communicator),
      context_(context),
      options_(options),
      collectives_(communicator, context, {.bucket_numel = options.bucket_numel}),
      states_(groups.size()),
      uses_(context) {}

void GatheredWeights::become(GroupState& state, Residence to) {
  const auto next = [](Residence from) {
    return from == Residence::sharded     ? Residence::gathering
           : from == Residence::gathering ? Residence::unsharded
                                          : Residence::sharded;
  };
  bug_check(to == next(state.residence), "a shard group cannot go from state ",
            static_cast<int>(state.residence), " to ", static_cast<int>(to));
  state.residence = to;
}

View GatheredWeights::arena_view(const ShardGroup& group, SegmentKind kind, Range range) const {
  const Segment& segment = group.segment(kind);
  if (store_.keeps_whole(kind)) return store_.kept(group, segment, range);
  return store_.view_of(group, states_[group].arena, segment, range);
}

void GatheredWeights::begin_pass(bool goes_on) {
  if (!goes_on) wanted_.clear();
  store_.settle();
}

void GatheredWeights::gather(int index, TraceKind kind) {
  const ShardGroup& group = groups_[index];
  if (states_[group].residence == Residence::sharded) gather(group, kind);
  read_ahead();
}

void GatheredWeights::gather_for_use(int index) {
  const ShardGroup& group = groups_[index];
  if (store_.shards() == nullptr || states_[group].residence != Residence::sharded) return;
  make_room(group);
  gather(group, TraceKind::gather);
}

void GatheredWeights::release(int index) noexcept {
  const ShardGroup& group = groups_[index];
  GroupState& state = states_[group];
  if (state.pins > 0 || state.residence == Residence::sharded) return;
  if (state.residence == Residence::gathering) {
    abandon(group);
  } else {
    reshard(group);
  }
}

void GatheredWeights::read(int group) {
  if (!store_.offloads()) return;
  wanted_.push_back(group);
  read_ahead();
}

void GatheredWeights::await_gather(GroupState& state) {
  if (state.residence != Residence::gathering) return;
  state.work.wait_on(context_.compute());
  become(state, Residence::unsharded);
}

ConstView GatheredWeights::pin(ParameterIndex parameter) {
  const ShardGroup& group = groups_.of(parameter);
  const Placement& placement = groups_.at(parameter);
  GroupState& state = states_[group];
  await_gather(state);
  bug_check(store_.shards() == nullptr || state.residence == Residence::unsharded, "group ",
            group.name(), " is used before it was gathered");
  const ConstView values =
      uses_.begin(group, parameter, arena_view(group, placement.segment, placement.range()));
  // Last: no unpin() follows a pin() that throws.
  ++state.pins;
  return values;
}

void GatheredWeights::unpin(ParameterIndex parameter) noexcept {
  uses_.end(parameter);
  --states_[parameter.group].pins;
}

void GatheredWeights::end_passes() {
  int pinned = 0;
  for (const GroupState& state : states_) pinned += state.pins;
  bug_check(pinned == 0, pinned, " parameters are still in use at the end of a pass");
  for (const ShardGroup& group : groups_) {
    await_gather(states_[group]);
    if (states_[group].residence == Residence::unsharded) reshard(group);
  }
  bug_check(live_numel_ == 0, live_numel_, " elements are counted as gathered when none are");
}

void GatheredWeights::expect_updates(bool skipped) {
  if (!skipped) store_.expect_updates();
  for (GroupState& state : states_) state.is_outdated = true;
}

// Gathers the trained segments that ranks keep whole. Returns an event that has happened if there
// are none.
Event GatheredWeights::publish(int index, const std::vector<Event>& updated) {
  const ShardGroup& group = groups_[index];
  GroupState& state = states_[group];
  state.is_outdated = false;
  if (store_.shards() != nullptr) state.updated = updated;
  int64_t bytes = 0;
  for (const Segment& segment : group.segments()) {
    const bool is_published = is_trained(segment.kind) && store_.keeps_whole(segment.kind);
    if (is_published) bytes += segment.size * size_of(group.dtype());
  }
  if (!store_.options().shard_optimizer || bytes == 0) return {};
  const StreamRef stream = context_.stream(StreamRole::gather);
  order(context_.compute(), stream);
  for (const Event& event : updated) stream->wait(event);
  const TraceSpan span(context_.trace(), TraceKind::publish, stream, group.name(),
                       sent_bytes(bytes));
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind) || !store_.keeps_whole(segment.kind)) continue;
    collectives_.all_gather(store_.kept(group, segment, store_.optimizer().owned(segment)),
                            store_.kept(group, segment, segment.range()), stream);
  }
  return stream->record();
}

int64_t GatheredWeights::sent_bytes(int64_t bytes) const {
  const int64_t world = communicator_.size();
  return bytes / world * (world - 1);
}

StreamRef GatheredWeights::gather_stream() {
  if (!options_.overlap) return context_.compute();
  const StreamRef stream = context_.stream(StreamRole::gather);
  // The arena's memory may still be in use by work on the compute stream.
  stream->wait(context_.compute()->record());
  return stream;
}

void GatheredWeights::bring(const ShardGroup& group, StreamRef stream) {
  const StreamRef copies = options_.overlap ? context_.stream(StreamRole::copy_in) : stream;
  copies->wait(context_.compute()->record());  // as in gather_stream()
  for (const Event& event : states_[group].updated) copies->wait(event);
  {
    const TraceSpan span(context_.trace(), TraceKind::swap_in, copies, group.name(), 0);
    store_.shards()->bring(
        group,
        [&](const Segment& segment) {
          return arena_view(group, segment.kind, store_.shards()->own(segment));
        },
        copies);
  }
  stream->wait(copies->record());
}

void GatheredWeights::read_ahead() {
  if (wanted_.empty()) return;
  std::erase_if(wanted_,
                [this](int group) { return states_[group].residence != Residence::sharded; });
  store_.shards()->read_ahead(wanted_);
}

void GatheredWeights::gather(const ShardGroup& group, TraceKind kind) {
  GroupState& state = states_[group];
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

void GatheredWeights::fill(const ShardGroup& group, TraceKind kind) {
  GroupState& state = states_[group];
  const StreamRef stream = gather_stream();
  for (const Event& event : state.updated) stream->wait(event);
  if (store_.offloads()) bring(group, stream);
  state.updated.clear();
  const TraceSpan span(context_.trace(), kind, stream, group.name(),
                       sent_bytes(group.gathered_bytes()));
  for (const Segment& segment : group.segments()) {
    if (is_persistent(segment.kind)) continue;
    const Range own = store_.shards()->own(segment);
    collectives_.all_gather(
        store_.offloads() ? arena_view(group, segment.kind, own) : store_.kept(group, segment, own),
        arena_view(group, segment.kind, segment.range()), stream);
  }
  state.work = comm::Work(stream->record());
}

void GatheredWeights::abandon(const ShardGroup& group) noexcept {
  for (const StreamRole role : {StreamRole::copy_in, StreamRole::gather}) {
    try {
      context_.compute()->wait(context_.stream(role)->record());
    } catch (...) {
      // The stream has failed. Its next use reports the error.
    }
  }
  reshard(group);
}

void GatheredWeights::reshard(const ShardGroup& group) noexcept {
  GroupState& state = states_[group];
  state.residence = Residence::sharded;  // callers have checked the state before
  state.work = {};
  live_numel_ -= group.gathered_numel();
  trace_mark(context_.trace(), TraceKind::release, group.name(), state.arena.bytes());
  state.arena.reset();
  trace_memory(context_);
}

void GatheredWeights::make_room(const ShardGroup& group) {
  for (const ShardGroup& other : groups_) {
    if (live_numel_ + group.gathered_numel() <= options_.max_live_numel) return;
    const GroupState& state = states_[other];
    if (state.residence == Residence::unsharded && state.pins == 0) reshard(other);
  }
}

}  // namespace zinc::zero
