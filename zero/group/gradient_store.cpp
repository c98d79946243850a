#include "zero/group/gradient_store.h"

#include <cstddef>

#include "core/error.h"
#include "core/transfer.h"
#include "kernels/fill.h"
#include "zero/trace/step_trace.h"

namespace zinc::zero {

GradientStore::GradientStore(const std::vector<ShardGroup>& groups,
                             comm::Communicator& communicator, Context& context, PhaseClock& clock,
                             const GradientStoreOptions& options)
    : groups_(groups),
      communicator_(communicator),
      context_(context),
      clock_(clock),
      options_(options),
      collectives_(communicator, context,
                   {.dtype = options.policy.wire,
                    .bucket_numel = options.bucket_numel,
                    .divisor = options.wire_divisor}),
      states_(groups.size()) {
  for (const ShardGroup& group : groups) {
    state_of(group).in_step.assign(group.placements().size(), false);
    state_of(group).micro_steps.resize(1);
  }
}

bool GradientStore::has_turn(const ShardGroup& group) const {
  return options_.turns.empty() || options_.turns[static_cast<size_t>(group.index())] == turn_;
}

void GradientStore::begin_micro_steps(int64_t index, int64_t together, int64_t count,
                                      const BackwardTurn& turn) {
  bug_check(together == 1 || !keeps_written(), "sums kept over micro-batches are made one by one");
  begin_ = index;
  count_ = count;
  current_ = 0;
  together_ = static_cast<size_t>(together);
  turn_ = turn;
  for (const ShardGroup& group : groups_) {
    if (!has_turn(group)) continue;
    GroupState& state = state_of(group);
    state.micro_steps.resize(static_cast<size_t>(together));
    for (MicroStep& micro_step : state.micro_steps) {
      micro_step.done = 0;
      micro_step.complete = false;
      micro_step.seen.assign(state.in_step.size(), false);
    }
    if (index == 0) state.in_step.assign(state.in_step.size(), false);
  }
  if (options_.swapped != nullptr) options_.swapped->begin(index == 0);
}

autograd::GradientTarget GradientStore::target(ParameterIndex parameter) {
  const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
  GroupState& state = state_of(group);
  MicroStep& micro_step = now(state);
  const auto position = static_cast<size_t>(parameter.position);
  const Placement& placement = group.placements()[position];
  if (!micro_step.written) {
    micro_step.written = take(group.trained_numel(), policy().written);
    std::vector<TensorSlice::Piece> gaps;
    for (const Range& gap : group.trained_gaps()) gaps.push_back({gap.begin, gap.size()});
    if (!gaps.empty()) {
      const Range all{0, group.trained_numel()};
      kernels::fill(
          {.y = part(micro_step.written, policy().written, all), .pieces = std::move(gaps)},
          context_.compute());
    }
  }
  const bool seen = keeps_written() ? state.in_step[position] : micro_step.seen[position];
  state.in_step[position] = true;
  micro_step.seen[position] = true;
  return {.view = part(micro_step.written, policy().written, placement.range())
                      .reshape(placement.parameter->shape()),
          .accumulate = seen};
}

void GradientStore::gradient_done(ParameterIndex parameter) {
  const ShardGroup& group = groups_[static_cast<size_t>(parameter.group)];
  if (++now(state_of(group)).done == group.num_trained_parameters()) complete(group);
  if (options_.swapped != nullptr) options_.swapped->advance();
}

void GradientStore::complete_micro_steps() {
  for (const ShardGroup& group : groups_) {
    if (!has_turn(group)) continue;
    GroupState& state = state_of(group);
    for (current_ = 0; current_ < state.micro_steps.size(); ++current_) {
      if (!now(state).complete) complete(group);
    }
  }
  current_ = 0;
}

bool GradientStore::is_complete(int group, int64_t i) const {
  return states_[static_cast<size_t>(group)].micro_steps[static_cast<size_t>(i)].complete;
}

void GradientStore::reduce(int index, int64_t i) {
  const ShardGroup& group = groups_[static_cast<size_t>(index)];
  const size_t entered = current_;
  current_ = static_cast<size_t>(i);
  GroupState& state = state_of(group);
  if (!now(state).complete) complete(group);
  reduce_group(group, state);
  trace_memory(context_);
  end_reduction();
  if (!options_.overlap) state.work.wait_on(context_.compute());
  current_ = entered;
}

GradientProgress GradientStore::progress() const {
  GradientProgress made;
  for (const GroupState& state : states_) {
    const MicroStep& micro_step = state.micro_steps.front();
    made.groups.push_back({.in_step = state.in_step,
                           .seen = micro_step.seen,
                           .done = micro_step.done,
                           .complete = micro_step.complete});
  }
  return made;
}

void GradientStore::resume(const GradientProgress& progress) {
  bug_check(options_.stays && progress.groups.size() == states_.size(),
            "gradients that do not stay cannot be written again");
  for (size_t g = 0; g < states_.size(); ++g) {
    const GradientProgress::Group& from = progress.groups[g];
    MicroStep& micro_step = states_[g].micro_steps.front();
    states_[g].in_step = from.in_step;
    micro_step.seen = from.seen;
    micro_step.done = from.done;
    micro_step.complete = from.complete;
  }
}

void GradientStore::discard() {
  discard_all_but_host();
  for (GroupState& state : states_) state.host.reset();
}

void GradientStore::discard_all_but_host() {
  clear();
  if (options_.swapped != nullptr) options_.swapped->forget();
}

bool GradientStore::has_arrived(int group) {
  if (options_.swapped != nullptr) return options_.swapped->has_arrived(group);
  return states_[static_cast<size_t>(group)].work.query();
}

void GradientStore::await(int group, StreamRef stream) {
  if (options_.swapped != nullptr) {
    options_.swapped->await(group);
  } else {
    states_[static_cast<size_t>(group)].work.wait_on(stream);
  }
}

void GradientStore::complete(const ShardGroup& group) {
  GroupState& state = state_of(group);
  now(state).complete = true;
  if (group.num_trained_parameters() > 0) {
    zero_unused(group, state);
    collect(group, state);
  }
}

// Writes zeros for parameters that took no part in the loss.
void GradientStore::zero_unused(const ShardGroup& group, GroupState& state) {
  if (keeps_written() && !is_last()) return;  // a later micro-batch may still bring it
  const std::vector<bool> seen = keeps_written() ? state.in_step : now(state).seen;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] || !is_trained(group.placements()[i].segment)) continue;
    require(options_.allow_unused, "parameter '", group.placements()[i].parameter->name(),
            "' took no part in the loss; freeze it, or set ignore_unused_parameters to true");
    const auto unused = target({.group = group.index(), .position = static_cast<int>(i)});
    kernels::fill({.y = unused.view}, context_.compute());
  }
}

Block GradientStore::take(int64_t numel, DType dtype) {
  return context_.allocate(numel * size_of(dtype), Label::gradients);
}

View GradientStore::whole(const Block& block, DType dtype) const {
  return {block.data(), dtype, Shape{block.bytes() / size_of(dtype)}, context_.device()};
}

View GradientStore::part(const Block& block, DType dtype, Range range) const {
  return whole(block, dtype).narrow(0, range.begin, range.size());
}

int64_t GradientStore::sent_bytes(const ShardGroup& group, DType dtype) const {
  const int64_t world = communicator_.size();
  return group.trained_numel() / world * (world - 1) * size_of(dtype);
}

StreamRef GradientStore::begin_reduction() {
  const StreamRef stream = context_.stream(StreamRole::reduce);
  stream->wait(context_.compute()->record());
  clock_.begin_reduction(stream);
  return stream;
}

bool GradientStore::keeps_on_device(const ShardGroup& group) const {
  return options_.split.numel(group, Tier::device) > 0;
}

bool GradientStore::leaves_device(const ShardGroup& group) const {
  return options_.split.numel(group, Tier::device) < group.trained_numel() / options_.split.parts();
}

void GradientStore::send_off(const ShardGroup& group, GroupState& state, const Shard& shard) {
  if (options_.swapped != nullptr) {
    send_to_swap(group, state, shard);
  } else {
    send_to_host(group, state, shard);
  }
}

SwappedGradients::OnDevice GradientStore::tile_of(const ShardGroup& group, const Shard& shard) {
  return [this, &group, &shard](const Tile& tile) {
    const Segment& segment = group.segment(tile.segment);
    const Range own = segment.shard(communicator_.rank(), communicator_.size());
    return shard(segment).narrow(0, tile.range.begin - own.begin, tile.range.size());
  };
}

void GradientStore::send_to_swap(const ShardGroup& group, GroupState& state, const Shard& shard) {
  for (const Segment& segment : group.segments()) {
    if (!is_last() || !on_sums_ || !is_trained(segment.kind)) continue;
    on_sums_(group.index(), segment.shard(communicator_.rank(), communicator_.size()),
             shard(segment), context_.stream(StreamRole::reduce));
  }
  state.work = comm::Work(options_.swapped->send(group.index(), tile_of(group, shard)));
}

void GradientStore::bring_back(const ShardGroup& group, const Shard& shard, StreamRef stream) {
  bug_check(options_.swapped != nullptr, "the sums of group ", group.name(), " are not there");
  stream->wait(options_.swapped->bring(group.index(), tile_of(group, shard)));
}

void GradientStore::await_swap() {
  if (options_.swapped != nullptr) options_.swapped->await_all();
}

void GradientStore::send_to_host(const ShardGroup& group, GroupState& state, const Shard& shard) {
  const int64_t numel =
      group.trained_numel() / communicator_.size() - options_.split.numel(group, Tier::device);
  state.host =
      context_.allocate(numel * size_of(policy().kept), Label::gradients, Tier::pinned_host);
  const StreamRef stream = context_.stream(StreamRole::copy_out);
  // The block may be memory that work on the compute stream still uses.
  stream->wait(context_.compute()->record());
  stream->wait(context_.stream(StreamRole::reduce)->record());
  const View host(state.host.data(), policy().kept, Shape{numel}, context_.device(),
                  Tier::pinned_host);
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    const Range own = segment.shard(communicator_.rank(), communicator_.size());
    const ConstView sums = shard(segment);
    for (const StateSplit::Piece& piece : options_.split.pieces(group, segment, own)) {
      if (piece.tier == Tier::device) continue;
      transfer(sums.narrow(0, piece.range.begin - own.begin, piece.range.size()),
               host.narrow(0, piece.place, piece.range.size()), stream);
    }
  }
  state.work = comm::Work(stream->record());
}

StateSplit::Piece GradientStore::piece_of(const ShardGroup& group, Range range) {
  for (const Segment& segment : group.segments()) {
    const Range own = segment.shard(communicator_.rank(), communicator_.size());
    const Range inside = intersect(own, range);
    if (inside.empty()) continue;
    bug_check(inside == range, "a gradient beyond the rank's shard was asked for");
    return options_.split.piece(group, segment, range);
  }
  throw InternalError(str("no trained shard of group ", group.name(), " holds [", range.begin, ", ",
                          range.end, ")"));
}

ConstView GradientStore::host_gradient(const ShardGroup& group, const StateSplit::Piece& piece) {
  if (options_.swapped != nullptr) return options_.swapped->read(group, piece.range);
  const Block& host = state_of(group).host;
  bug_check(static_cast<bool>(host), "the gradient of group ", group.name(), " is not there");
  return ConstView(host.data(), policy().kept, Shape{host.bytes() / size_of(policy().kept)},
                   context_.device(), Tier::pinned_host)
      .narrow(0, piece.place, piece.range.size());
}

void GradientStore::end_reduction() { clock_.end_reduction(context_.stream(StreamRole::reduce)); }

}  // namespace zinc::zero
