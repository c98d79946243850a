#include "zero/group/weight_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/trace_marks.h"
#include "core/trace_span.h"
#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/decode.h"
#include "kernels/fill.h"

namespace zinc::zero {
namespace {

// Reads elements `piece` of a parameter, counted in its arena, into a staging buffer and calls
// store(values). `piece`: kPieceNumel elements at most. values: [piece.size()] f32 (f64 models:
// f64) on the device. Waits for the compute stream. On a meta device nothing is read.
template <class Store>
void load_range(Context& context, const ReadValues& read, const Placement& placement, Range piece,
                const Store& store) {
  if (piece.empty()) return;
  const autograd::Parameter& parameter = *placement.parameter;
  const int64_t begin = piece.begin - placement.offset;
  const DType wide = parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Block room = context.allocate(piece.size() * size_of(wide), Label::staging);
  const View values(room.data(), wide, Shape{piece.size()}, context.device());
  // Earlier work on this memory must end before the host fills it.
  if (!context.device().meta) context.compute()->synchronize();
  if (context.device().is_cuda() && !context.device().meta) {
    std::vector<std::byte> in_host(static_cast<size_t>(values.bytes()));
    read(parameter, begin, View(in_host.data(), wide, values.shape(), kCpu));
    upload(in_host.data(), values, context.compute());
  } else if (!context.device().meta) {
    read(parameter, begin, values);
  }
  store(values);
  context.compute()->synchronize();
}

}  // namespace

WeightStore::WeightStore(const ShardGroups& groups, comm::Communicator& communicator,
                         Context& context, const WeightStoreOptions& options)
    : groups_(groups),
      communicator_(communicator),
      context_(context),
      options_(options),
      optimizer_(groups, communicator, context, options.states, options.split, options.swapped,
                 /*own_master=*/offloads()),
      collectives_(communicator, context, {.bucket_numel = options.bucket_numel}),
      shards_(options.shard_weights ? std::make_unique<ParameterShards>(groups, communicator,
                                                                        context, options.parameters)
                                    : nullptr),
      states_(groups.size()) {
  for (const ShardGroup& group : groups_) {
    const int64_t bytes = group.bytes() - (shards_ != nullptr ? group.gathered_bytes() : 0);
    if (bytes == 0) continue;
    Block& kept = states_[group].kept;
    kept = context.allocate(bytes, Label::parameters);
    kernels::fill({.y = View(kept.data(), DType::u8, Shape{bytes}, context.device())},
                  context.compute());
  }
  slices_ = optimizer_.slices([this](const OwnedRange& slice) { return model_view(slice); });
}

void WeightStore::become(GroupState& state, Residence to) {
  const auto next = [](Residence from) {
    return from == Residence::sharded     ? Residence::gathering
           : from == Residence::gathering ? Residence::unsharded
                                          : Residence::sharded;
  };
  bug_check(to == next(state.residence), "a shard group cannot go from state ",
            static_cast<int>(state.residence), " to ", static_cast<int>(to));
  state.residence = to;
}

int64_t WeightStore::bytes_before(const ShardGroup& group, const Segment& segment) const {
  int64_t bytes = 0;
  for (const Segment& other : group.segments()) {
    if (other.kind == segment.kind) break;
    if (keeps_whole(other.kind) != keeps_whole(segment.kind)) continue;
    bytes += other.encoding.bytes_of(other.size);
  }
  return bytes;
}

View WeightStore::view_of(const ShardGroup& group, const Block& block, const Segment& segment,
                          Range range) const {
  return segment.encoding.view(block, bytes_before(group, segment), range.from(segment.offset),
                               context_.device());
}

View WeightStore::kept_view(const ShardGroup& group, const Segment& segment, Range range) const {
  if (!keeps_whole(segment.kind)) return shards_->view(group, segment, range);
  return view_of(group, states_[group].kept, segment, range);
}

View WeightStore::arena_view(const ShardGroup& group, SegmentKind kind, Range range) const {
  const Segment& segment = group.segment(kind);
  if (keeps_whole(kind)) return kept_view(group, segment, range);
  return view_of(group, states_[group].arena, segment, range);
}

View WeightStore::model_view(const OwnedRange& slice) const {
  const ShardGroup& group = groups_[slice.group];
  const bool is_swapped = !keeps_whole(slice.segment) && shards_->tier_of(group) == Tier::nvme;
  return is_swapped ? View() : kept_view(group, group.segment(slice.segment), slice.range);
}

View WeightStore::master_view(const OwnedRange& slice) {
  if (is_trained(slice.segment) && optimizer_.has_master(slice)) return optimizer_.master(slice);
  const ShardGroup& group = groups_[slice.group];
  const Segment& segment = group.segment(slice.segment);
  const Range& range = slice.range;
  const View stored = keeps_whole(segment.kind) ? kept_view(group, segment, range)
                                                : shards_->read(group, segment, range);
  if (!is_quantized(segment.kind)) return stored;
  // A read from swap space may give fewer values than were asked for.
  const int64_t there = stored.numel() / segment.encoding.chunk_numel * kNormChunk;
  return decoded(group, {range.begin, std::min(range.end, range.begin + there)}, stored);
}

OwnedValues WeightStore::masters() {
  return [this](const OwnedRange& slice) { return master_view(slice); };
}

OwnedValues WeightStore::values_of(int plane) {
  if (plane == kMasterPlane) return masters();
  return [this, plane](const OwnedRange& slice) {
    return optimizer_.state(slice, plane - kFirstStatePlane);
  };
}

void WeightStore::begin_pass(bool goes_on) {
  if (!goes_on) wanted_.clear();
  if (shards_ != nullptr) shards_->settle();
  optimizer_.settle();
}

void WeightStore::gather(int index, TraceKind kind) {
  const ShardGroup& group = groups_[index];
  if (states_[group].residence == Residence::sharded) gather(group, kind);
  read_ahead();
}

void WeightStore::gather_for_use(int index) {
  const ShardGroup& group = groups_[index];
  if (shards_ == nullptr || states_[group].residence != Residence::sharded) return;
  make_room(group);
  gather(group, TraceKind::gather);
}

void WeightStore::release(int index) noexcept {
  const ShardGroup& group = groups_[index];
  GroupState& state = states_[group];
  if (state.pins > 0 || state.residence == Residence::sharded) return;
  if (state.residence == Residence::gathering) {
    abandon(group);
  } else {
    reshard(group);
  }
}

void WeightStore::read(int group) {
  if (!offloads()) return;
  wanted_.push_back(group);
  read_ahead();
}

void WeightStore::await_gather(GroupState& state) {
  if (state.residence != Residence::gathering) return;
  state.work.wait_on(context_.compute());
  become(state, Residence::unsharded);
}

ConstView WeightStore::pin(ParameterIndex parameter) {
  const ShardGroup& group = groups_.of(parameter);
  const Placement& placement = groups_.at(parameter);
  GroupState& state = states_[group];
  await_gather(state);
  bug_check(shards_ == nullptr || state.residence == Residence::unsharded, "group ", group.name(),
            " is used before it was gathered");
  const ConstView values =
      begin_use(parameter, arena_view(group, placement.segment, placement.range()));
  // Last: no unpin() follows a pin() that throws.
  ++state.pins;
  return values;
}

void WeightStore::unpin(ParameterIndex parameter) noexcept {
  end_use(parameter);
  --states_[parameter.group].pins;
}

void WeightStore::end_passes() {
  int pinned = 0;
  for (const GroupState& state : states_) pinned += state.pins;
  bug_check(pinned == 0, pinned, " parameters are still in use at the end of a pass");
  for (const ShardGroup& group : groups_) {
    await_gather(states_[group]);
    if (states_[group].residence == Residence::unsharded) reshard(group);
  }
  bug_check(live_numel_ == 0, live_numel_, " elements are counted as gathered when none are");
}

void WeightStore::take_updated(int group, Range range, const ConstView& values, StreamRef stream) {
  bug_check(shards_ != nullptr, "whole weights are on the device");
  shards_->take_updated(groups_[group], range, values, stream);
}

void WeightStore::expect_updates(bool skipped) {
  if (!skipped && options_.parameters.updates_during_passes && shards_ != nullptr) {
    shards_->expect_updates();
  }
  for (GroupState& state : states_) state.is_outdated = true;
}

// Gathers the trained segments that ranks keep whole. Returns an event that has happened if there
// are none.
Event WeightStore::publish(int index, const std::vector<Event>& updated) {
  const ShardGroup& group = groups_[index];
  GroupState& state = states_[group];
  state.is_outdated = false;
  if (shards_ != nullptr) state.updated = updated;
  int64_t bytes = 0;
  for (const Segment& segment : group.segments()) {
    const bool is_published = is_trained(segment.kind) && keeps_whole(segment.kind);
    if (is_published) bytes += segment.size * size_of(group.dtype());
  }
  if (!options_.shard_optimizer || bytes == 0) return {};
  const StreamRef stream = context_.stream(StreamRole::gather);
  order(context_.compute(), stream);
  for (const Event& event : updated) stream->wait(event);
  const TraceSpan span(context_.trace(), TraceKind::publish, stream, group.name(),
                       sent_bytes(bytes));
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind) || !keeps_whole(segment.kind)) continue;
    collectives_.all_gather(kept_view(group, segment, optimizer_.owned(segment)),
                            kept_view(group, segment, segment.range()), stream);
  }
  return stream->record();
}

void WeightStore::settle_updates() {
  if (shards_ != nullptr) shards_->finish_update();
}

offload::SwapTraffic WeightStore::swap_traffic() const {
  return shards_ != nullptr ? shards_->traffic() : offload::SwapTraffic();
}

int64_t WeightStore::sent_bytes(int64_t bytes) const {
  const int64_t world = communicator_.size();
  return bytes / world * (world - 1);
}

StreamRef WeightStore::gather_stream() {
  if (!options_.overlap) return context_.compute();
  const StreamRef stream = context_.stream(StreamRole::gather);
  // The arena's memory may still be in use by work on the compute stream.
  stream->wait(context_.compute()->record());
  return stream;
}

void WeightStore::bring(const ShardGroup& group, StreamRef stream) {
  const StreamRef copies = options_.overlap ? context_.stream(StreamRole::copy_in) : stream;
  copies->wait(context_.compute()->record());  // as in gather_stream()
  for (const Event& event : states_[group].updated) copies->wait(event);
  {
    const TraceSpan span(context_.trace(), TraceKind::swap_in, copies, group.name(), 0);
    shards_->bring(
        group,
        [&](const Segment& segment) {
          return arena_view(group, segment.kind, shards_->own(segment));
        },
        copies);
  }
  stream->wait(copies->record());
}

void WeightStore::read_ahead() {
  if (wanted_.empty()) return;
  std::erase_if(wanted_,
                [this](int group) { return states_[group].residence != Residence::sharded; });
  shards_->read_ahead(wanted_);
}

void WeightStore::gather(const ShardGroup& group, TraceKind kind) {
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

void WeightStore::fill(const ShardGroup& group, TraceKind kind) {
  GroupState& state = states_[group];
  const StreamRef stream = gather_stream();
  for (const Event& event : state.updated) stream->wait(event);
  if (offloads()) bring(group, stream);
  state.updated.clear();
  const TraceSpan span(context_.trace(), kind, stream, group.name(),
                       sent_bytes(group.gathered_bytes()));
  for (const Segment& segment : group.segments()) {
    if (is_persistent(segment.kind)) continue;
    const Range own = shards_->own(segment);
    collectives_.all_gather(
        offloads() ? arena_view(group, segment.kind, own) : kept_view(group, segment, own),
        arena_view(group, segment.kind, segment.range()), stream);
  }
  state.work = comm::Work(stream->record());
}

void WeightStore::abandon(const ShardGroup& group) noexcept {
  for (const StreamRole role : {StreamRole::copy_in, StreamRole::gather}) {
    try {
      context_.compute()->wait(context_.stream(role)->record());
    } catch (...) {
      // The stream has failed. Its next use reports the error.
    }
  }
  reshard(group);
}

void WeightStore::reshard(const ShardGroup& group) noexcept {
  GroupState& state = states_[group];
  state.residence = Residence::sharded;  // callers have checked the state before
  state.work = {};
  live_numel_ -= group.gathered_numel();
  trace_mark(context_.trace(), TraceKind::release, group.name(), state.arena.bytes());
  state.arena.reset();
  trace_memory(context_);
}

void WeightStore::make_room(const ShardGroup& group) {
  for (const ShardGroup& other : groups_) {
    if (live_numel_ + group.gathered_numel() <= options_.max_live_numel) return;
    const GroupState& state = states_[other];
    if (state.residence == Residence::unsharded && state.pins == 0) reshard(other);
  }
}

void WeightStore::read_master(ParameterIndex parameter, View out) {
  const ShardGroup& group = groups_.of(parameter);
  const Placement& placement = groups_.at(parameter);
  const bool has_master = is_trained(placement.segment) && optimizer_.has_master(group);
  if (has_master || !keeps_whole(placement.segment)) {
    optimizer_.read(group, placement, masters(), out);
  } else {
    const OwnedRange whole{
        .group = group.index(), .segment = placement.segment, .range = placement.range()};
    const View stored = model_view(whole);
    kernels::copy(
        {.x = is_quantized(placement.segment) ? decoded(group, whole.range, stored) : stored,
         .y = out},
        context_.compute());
    context_.compute()->synchronize();
  }
  forget_decoded();
}

void WeightStore::read_state(ParameterIndex parameter, int state, View out) {
  read_owned(parameter, values_of(kFirstStatePlane + state), out);
}

void WeightStore::read_owned(ParameterIndex parameter, const OwnedValues& values, View out) {
  require_trained(groups_.at(parameter));
  optimizer_.read(groups_.of(parameter), groups_.at(parameter), values, out);
}

void WeightStore::read_own(ParameterIndex parameter, int plane, Range range, View out) {
  const ShardGroup& group = groups_.of(parameter);
  const Segment& segment = group.segment(groups_.at(parameter).segment);
  optimizer_.copy_own(group, segment, range, values_of(plane), out);
  context_.compute()->synchronize();
  forget_decoded();
}

ConstView WeightStore::own_in_place(ParameterIndex parameter, int plane, Range range) {
  const ShardGroup& group = groups_.of(parameter);
  const Segment& segment = group.segment(groups_.at(parameter).segment);
  // Values from swap space lie in memory that the next call uses again.
  const bool is_resident = options_.swapped == nullptr && options_.parameters.tier != Tier::nvme;
  if (!is_resident || context_.device().meta) return {};
  const std::vector<OwnedRange> pieces = options_.split.cut(group, segment, range);
  if (pieces.size() != 1 || is_quantized(segment.kind)) return {};
  // Frozen values lie where the model keeps them, whatever `split` says of the segment.
  const ConstView there = values_of(plane)(pieces.front());
  if (there.tier() != Tier::pinned_host && !context_.device().is_cpu()) return {};
  const ConstView values = host_memory(there);
  return values.numel() == range.size() ? values : ConstView();
}

void WeightStore::write_master(ParameterIndex parameter, ConstView values) {
  end_passes();
  const Placement& placement = groups_.at(parameter);
  if (is_quantized(placement.segment)) {
    return load_encoded(groups_.of(parameter), placement,
                        [&](const autograd::Parameter&, int64_t begin, const View& out) {
                          const Block room = context_.allocate(out.bytes(), Label::staging);
                          const View rounded(room.data(), out.dtype(), out.shape(),
                                             context_.device());
                          kernels::copy({.x = values.narrow(0, begin, out.numel()), .y = rounded},
                                        context_.compute());
                          download(rounded, out.data(), context_.compute());
                        });
  }
  const Range range = kept_range(groups_.of(parameter), placement);
  if (!range.empty()) {
    store(groups_.of(parameter), placement, range,
          values.narrow(0, range.begin - placement.offset, range.size()));
  }
  context_.compute()->synchronize();
}

Range WeightStore::kept_range(const ShardGroup& group, const Placement& placement) const {
  if (keeps_whole(placement.segment)) return placement.range();
  return intersect(placement.range(), shards_->own(group.segment(placement.segment)));
}

void WeightStore::store_model(const ShardGroup& group, const Segment& segment, Range range,
                              const ConstView& values) {
  if (keeps_whole(segment.kind)) {
    kernels::copy({.x = values, .y = kept_view(group, segment, range)}, context_.compute());
  } else {
    shards_->write(group, segment, range, values);
  }
}

void WeightStore::store(const ShardGroup& group, const Placement& placement, Range range,
                        const ConstView& values) {
  const Segment& segment = group.segment(placement.segment);
  store_model(group, segment, range, values);
  if (!optimizer_.has_master(group) || !is_trained(placement.segment)) return;
  const Range owned = intersect(range, optimizer_.owned(segment));
  if (owned.empty()) return;
  optimizer_.write(group, segment, kMasterPlane, owned,
                   values.narrow(0, owned.begin - range.begin, owned.size()));
}

void WeightStore::load(const std::vector<ReadValues>& planes, const HasValues& has) {
  end_passes();
  for (const ShardGroup& group : groups_) {
    for (const Placement& placement : group.placements()) {
      if (placement.range().empty()) continue;
      if (is_quantized(placement.segment)) {
        if (!has || has(*placement.parameter, kMasterPlane)) {
          load_encoded(group, placement, planes[kMasterPlane]);
        }
        continue;
      }
      load(group, placement, kept_range(group, placement), planes, has);
    }
  }
  if (shards_ != nullptr) shards_->settle();
}

void WeightStore::load_encoded(const ShardGroup& group, const Placement& placement,
                               const ReadValues& read) {
  const Segment& segment = group.segment(placement.segment);
  const bool is_meta = context_.device().meta;
  std::optional<autograd::WeightEncoder> encoder;
  if (!is_meta) encoder.emplace(*placement.parameter, read);
  const Range range = kept_range(group, placement);
  for (int64_t begin = range.begin; begin < range.end; begin += kPieceNumel) {
    const Range piece{begin, std::min(begin + kPieceNumel, range.end)};
    const Block room = context_.allocate(segment.encoding.bytes_of(piece.size()), Label::staging);
    const View encoded = segment.encoding.view(room, 0, {0, piece.size()}, context_.device());
    if (!is_meta) {
      const auto bytes = encoder->encode(piece.begin - placement.offset, piece.size());
      upload(bytes.data(), encoded, context_.compute());
    }
    store_model(group, segment, piece, encoded);
    context_.compute()->synchronize();
    // On a meta device all pieces take the same bytes: one is enough.
    if (is_meta) break;
  }
}

ConstView WeightStore::begin_use(ParameterIndex parameter, const ConstView& stored) {
  const ShardGroup& group = groups_.of(parameter);
  const Placement& placement = groups_.at(parameter);
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

void WeightStore::end_use(ParameterIndex parameter) noexcept {
  const auto use = uses_.find({parameter.group, parameter.position});
  if (use != uses_.end() && --use->second.count == 0) use->second.values.reset();
}

View WeightStore::decoded(const ShardGroup& group, Range range, const ConstView& stored) {
  Block arrived;
  ConstView encoded = stored;
  if (stored.tier() != Tier::device) {
    arrived = context_.allocate(stored.bytes(), Label::staging);
    const View there(arrived.data(), stored.dtype(), stored.shape(), context_.device());
    transfer(stored, there, context_.compute());
    encoded = there;
  }
  const int64_t bytes = range.size() * size_of(group.dtype());
  if (decoded_.bytes() != bytes) {
    decoded_.reset();
    decoded_ = context_.allocate(bytes, Label::staging);
  }
  const View values(decoded_.data(), group.dtype(), Shape{range.size()}, context_.device());
  kernels::decode({.x = encoded, .format = *group.block_format(), .y = values}, context_.compute());
  return values;
}

// Loads piece by piece, and all planes of a piece before the next one: planes lie together in swap
// space.
void WeightStore::load(const ShardGroup& group, const Placement& placement, Range range,
                       const std::vector<ReadValues>& planes, const HasValues& has) {
  const auto is_there = [&](size_t plane) {
    return !has || has(*placement.parameter, static_cast<int>(plane));
  };
  const Segment& segment = group.segment(placement.segment);
  for (int64_t begin = range.begin; begin < range.end; begin += kPieceNumel) {
    const Range piece{begin, std::min(begin + kPieceNumel, range.end)};
    if (is_there(kMasterPlane)) {
      load_range(context_, planes[kMasterPlane], placement, piece,
                 [&](const View& values) { store(group, placement, piece, values); });
    }
    if (!is_trained(placement.segment)) continue;
    const Range owned = intersect(piece, optimizer_.owned(segment));
    for (size_t plane = kFirstStatePlane; plane < planes.size(); ++plane) {
      if (!is_there(plane)) continue;
      load_range(context_, planes[plane], placement, owned, [&](const View& values) {
        optimizer_.write(group, segment, static_cast<int>(plane), owned, values);
      });
    }
    // On a meta device all pieces take the same bytes: one is enough.
    if (context_.device().meta) return;
  }
}

std::vector<std::pair<autograd::Parameter*, Tensor>> WeightStore::hand_over() {
  std::vector<std::pair<autograd::Parameter*, Tensor>> values;
  if (shards_ != nullptr) return values;
  for (const ShardGroup& group : groups_) {
    const auto kept = std::make_shared<Block>(std::move(states_[group].kept));
    for (const Placement& placement : group.placements()) {
      if (is_quantized(placement.segment)) continue;  // there may be no room for them
      const View own = view_of(group, *kept, group.segment(placement.segment), placement.range());
      values.emplace_back(placement.parameter,
                          Tensor::wrap(own.reshape(placement.parameter->shape()), kept));
    }
  }
  return values;
}

}  // namespace zinc::zero
