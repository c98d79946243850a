#include "zero/group/gradient_store.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "core/trace_marks.h"
#include "core/trace_span.h"
#include "core/transfer.h"
#include "kernels/accumulate.h"
#include "kernels/fill.h"

namespace zinc::zero {
namespace {

// Reductions that may hold their source buffers while backward goes on.
constexpr size_t kMaxReductionsInFlight = 2;

}  // namespace

GradientStore::GradientStore(const ShardGroups& groups, comm::Communicator& communicator,
                             Context& context, PhaseClock& clock,
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
    states_[group].in_step.assign(group.placements().size(), false);
    states_[group].micro_steps.resize(1);
  }
  make_host_gradients();
}

void GradientStore::make_host_gradients() {
  int64_t away = 0;
  int64_t most_added = 0;
  for (const ShardGroup& group : groups_) {
    away += numel(group, false);
    if (may_add_in_host(group)) most_added = std::max(most_added, numel(group, false));
  }
  if (away == 0 || options_.swapped != nullptr) return;
  host_.emplace(groups_, context_,
                HostGradientsOptions{.slices = options_.slices,
                                     .dtype = options_.policy.kept,
                                     .tree = options_.policy.tree_over_micro_batches,
                                     .added = added_dtype(),
                                     .most_added = most_added});
}

bool GradientStore::may_add_in_host(const ShardGroup& group) const {
  return options_.adds_in_host && numel(group, false) > 0 && numel(group, true) == 0;
}

DType GradientStore::added_dtype() const {
  const GradientPolicy& policy = options_.policy;
  const bool is_whole_sum = communicator_.size() == 1;
  const bool is_rounded = policy.kept != policy.wire && policy.kept != DType::f32;
  if (is_whole_sum || is_rounded || policy.wire == DType::f64) return policy.wire;
  return DType::f32;
}

bool GradientStore::has_turn(const ShardGroup& group) const {
  return options_.turns.empty() || options_.turns[group] == turn_;
}

void GradientStore::begin_micro_steps(int64_t index, int64_t together, int64_t count,
                                      const BackwardTurn& turn) {
  bug_check(together == 1 || !keeps_written(), "sums kept over micro-batches are made one by one");
  // Buffers that stay are written again now. Others are from before a forward pass, and would only
  // lie beside those of this backward pass; in a pipeline none may have come between.
  while ((options_.stays || options_.turns.empty()) && !in_flight_.empty()) retire_oldest();
  begin_ = index;
  count_ = count;
  current_ = 0;
  together_ = static_cast<size_t>(together);
  turn_ = turn;
  for (const ShardGroup& group : groups_) {
    if (!has_turn(group)) continue;
    GroupState& state = states_[group];
    state.micro_steps.resize(static_cast<size_t>(together));
    for (MicroStepProgress& micro_step : state.micro_steps) {
      micro_step = {.seen = std::vector<bool>(state.in_step.size(), false)};
    }
    if (index == 0) state.in_step.assign(state.in_step.size(), false);
  }
  if (options_.swapped != nullptr) options_.swapped->begin(index == 0);
  if (host_) host_->begin();
}

autograd::GradientTarget GradientStore::target(ParameterIndex parameter) {
  const ShardGroup& group = groups_.of(parameter);
  GroupState& state = states_[group];
  MicroStep& micro_step = now(state);
  const auto position = static_cast<size_t>(parameter.position);
  const Placement& placement = groups_.at(parameter);
  if (!micro_step.written) {
    micro_step.written = take(group.trained_numel(), options_.policy.written);
    std::vector<TensorSlice::Piece> gaps;
    for (const Range& gap : group.trained_gaps()) gaps.push_back({gap.begin, gap.size()});
    if (!gaps.empty()) {
      const Range all{0, group.trained_numel()};
      kernels::fill(
          {.y = part(micro_step.written, options_.policy.written, all), .pieces = std::move(gaps)},
          context_.compute());
    }
  }
  const bool seen = keeps_written() ? state.in_step[position] : micro_step.seen[position];
  state.in_step[position] = true;
  micro_step.seen[position] = true;
  return {.view = part(micro_step.written, options_.policy.written, placement.range())
                      .reshape(placement.parameter->shape()),
          .accumulate = seen};
}

void GradientStore::gradient_done(ParameterIndex parameter) {
  const ShardGroup& group = groups_.of(parameter);
  if (++now(states_[group]).done == group.num_trained_parameters()) complete(group);
  if (options_.swapped != nullptr) options_.swapped->advance();
}

void GradientStore::complete_micro_steps() {
  for (const ShardGroup& group : groups_) {
    if (!has_turn(group)) continue;
    GroupState& state = states_[group];
    for (current_ = 0; current_ < state.micro_steps.size(); ++current_) {
      if (!now(state).complete) complete(group);
    }
  }
  current_ = 0;
}

bool GradientStore::is_complete(int group, int64_t i) const {
  return states_[group].micro_steps[static_cast<size_t>(i)].complete;
}

void GradientStore::reduce(int index, int64_t i) {
  const ShardGroup& group = groups_[index];
  const size_t entered = current_;
  current_ = static_cast<size_t>(i);
  GroupState& state = states_[group];
  if (!now(state).complete) complete(group);
  const comm::Work reduced =
      options_.whole ? reduce_whole(group, state) : reduce_to_shards(group, state);
  trace_memory(context_);
  end_reduction();
  if (!options_.overlap) reduced.wait_on(context_.compute());
  current_ = entered;
}

GradientProgress GradientStore::progress() const {
  GradientProgress made;
  for (const GroupState& state : states_) {
    made.groups.push_back({.micro_step = state.micro_steps.front(), .in_step = state.in_step});
  }
  return made;
}

void GradientStore::resume(const GradientProgress& progress) {
  bug_check(options_.stays && progress.groups.size() == states_.size(),
            "gradients that do not stay cannot be written again");
  for (size_t g = 0; g < states_.size(); ++g) {
    states_[g].in_step = progress.groups[g].in_step;
    static_cast<MicroStepProgress&>(states_[g].micro_steps.front()) = progress.groups[g].micro_step;
  }
}

void GradientStore::discard() {
  discard_all_but_host();
  for (const ShardGroup& group : groups_) discard_host(group.index());
}

void GradientStore::discard_all_but_host() {
  for (GroupState& state : states_) {
    if (options_.stays) break;
    for (MicroStep& micro_step : state.micro_steps) micro_step.written.reset();
    state.kept.reset();
    state.tree.clear();
  }
  if (options_.swapped != nullptr) options_.swapped->forget();
}

bool GradientStore::has_arrived(int group) {
  if (options_.swapped != nullptr) return options_.swapped->has_arrived(group);
  return states_[group].work.query();
}

void GradientStore::await(int group, StreamRef stream) {
  if (options_.swapped != nullptr) {
    options_.swapped->await(group);
  } else {
    states_[group].work.wait_on(stream);
  }
}

void GradientStore::complete(const ShardGroup& group) {
  GroupState& state = states_[group];
  now(state).complete = true;
  if (group.num_trained_parameters() > 0) {
    zero_unused(group, state);
    if (!options_.whole || keeps_written()) return;
    if (!state.kept) state.kept = take(group.trained_numel(), options_.policy.kept);
    kernels::accumulate({.x = whole(now(state).written, options_.policy.written),
                         .accumulator = whole(state.kept, options_.policy.kept),
                         .overwrite = is_first()},
                        context_.compute());
    now(state).written.reset();
  }
}

// Writes zeros for parameters that took no part in the loss.
void GradientStore::zero_unused(const ShardGroup& group, GroupState& state) {
  if (keeps_written() && !is_last()) return;  // a later micro-batch may still bring the gradient
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
  order(context_.compute(), stream);
  clock_.begin_reduction(stream);
  return stream;
}

void GradientStore::end_reduction() { clock_.end_reduction(context_.stream(StreamRole::reduce)); }

comm::Work GradientStore::reduce_whole(const ShardGroup& group, GroupState& state) {
  const StreamRef stream = begin_reduction();
  const GradientPolicy& policy = options_.policy;
  const int64_t back = options_.replicate ? sent_bytes(group, policy.kept) : 0;
  const TraceSpan span(context_.trace(), TraceKind::reduce, stream, group.name(),
                       sent_bytes(group, policy.wire) + back);
  const View values = whole(sums(state), policy.kept);
  if (options_.replicate) return state.work = collectives_.all_reduce(values, stream);
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    state.work = collectives_.reduce_scatter(values.narrow(0, segment.offset, segment.size),
                                             shard_of(state, segment), false, stream);
  }
  comm::Work reduced = state.work;
  if (numel(group, false) > 0) send_off(group, state);
  return reduced;
}

comm::Work GradientStore::reduce_to_shards(const ShardGroup& group, GroupState& state) {
  const GradientPolicy& policy = options_.policy;
  const bool in_host = adds_in_host(group);
  const bool tree = policy.tree_over_micro_batches && !in_host;
  const bool returns = !state.kept && !tree && !in_host && !is_first();
  if (!state.kept) {
    state.dtype = in_host ? added_dtype() : policy.kept;
    state.kept = take(group.trained_numel() / communicator_.size(), state.dtype);
  }
  const StreamRef stream = begin_reduction();
  if (returns) {
    bug_check(options_.swapped != nullptr, "the sums of group ", group.name(), " are not there");
    stream->wait(options_.swapped->bring(group.index(), tile_of(group)));
  }
  const TraceSpan span(context_.trace(), TraceKind::reduce, stream, group.name(),
                       sent_bytes(group, policy.wire));
  const View written = whole(now(state).written, policy.written);
  const bool accumulates = !tree && !in_host && !is_first();
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    state.work = collectives_.reduce_scatter(written.narrow(0, segment.offset, segment.size),
                                             shard_of(state, segment), accumulates, stream);
  }
  in_flight_.emplace_back(state.work,
                          options_.stays ? Block() : std::exchange(now(state).written, Block()));
  if (tree) add_to_tree(state, stream);
  comm::Work reduced = state.work;
  if (numel(group, false) > 0 && (in_host || leaves_now())) {
    comm::Work left(send_off(group, state));
    const bool stays = numel(group, true) > 0;
    in_flight_.emplace_back(std::move(left), stays ? Block() : std::exchange(state.kept, Block()));
  }
  while (in_flight_.size() > kMaxReductionsInFlight) retire_oldest();
  return reduced;
}

void GradientStore::add_to_tree(GroupState& state, StreamRef stream) {
  std::vector<Subtree>& tree = state.tree;
  tree.push_back({.sum = std::exchange(state.kept, Block())});
  const auto mergeable = [&] {
    const size_t n = tree.size();
    return n >= 2 && (is_last() || tree[n - 2].micro_steps == tree[n - 1].micro_steps);
  };
  while (mergeable()) {
    Subtree right = std::move(tree.back());
    tree.pop_back();
    Subtree& left = tree.back();
    kernels::accumulate({.x = whole(right.sum, options_.policy.kept),
                         .accumulator = whole(left.sum, options_.policy.kept)},
                        stream);
    left.micro_steps += right.micro_steps;
    state.work = comm::Work(stream->record());
    in_flight_.emplace_back(state.work, std::move(right.sum));
  }
  if (is_last()) state.kept = std::move(tree.back().sum);
}

void GradientStore::retire_oldest() {
  in_flight_.front().first.wait_on(context_.compute());
  in_flight_.pop_front();
}

void GradientStore::finish() {
  while (!in_flight_.empty()) retire_oldest();
  if (options_.swapped != nullptr) options_.swapped->await_all();
  if (options_.replicate && !options_.whole) {
    for (const ShardGroup& group : groups_) gather(group);
  }
  for (const ShardGroup& group : groups_) {
    GroupState& state = states_[group];
    state.work.wait_on(context_.compute());
    if (!options_.whole) continue;
    if (numel(group, false) > 0 && numel(group, true) == 0) sums(state).reset();
  }
}

void GradientStore::gather(const ShardGroup& group) {
  if (group.num_trained_parameters() == 0) return;
  GroupState& state = states_[group];
  const DType dtype = options_.policy.kept;
  now(state).written = take(group.trained_numel(), dtype);
  const StreamRef stream = begin_reduction();
  const TraceSpan span(context_.trace(), TraceKind::reduce, stream, group.name(),
                       sent_bytes(group, dtype));
  for (const Segment& segment : group.segments()) {
    if (!is_trained(segment.kind)) continue;
    state.work = collectives_.all_gather(shard_of(state, segment),
                                         part(now(state).written, dtype, segment.range()), stream);
  }
  end_reduction();
}

ConstView GradientStore::gradient(const OwnedRange& slice) {
  if (slice.tier == Tier::device) return on_device(slice);
  if (options_.swapped != nullptr) return options_.swapped->read(groups_[slice.group], slice.range);
  return host_->read(slice);
}

View GradientStore::on_device(const OwnedRange& slice) {
  GroupState& state = states_[slice.group];
  const bool is_whole = options_.whole || options_.replicate;
  const Block& block = options_.whole       ? sums(state)
                       : options_.replicate ? now(state).written
                                            : state.kept;
  bug_check(static_cast<bool>(block), "the gradient of group ", slice.group, " is not there");
  return part(block, options_.policy.kept,
              is_whole ? slice.range : Range{slice.place, slice.place + slice.range.size()});
}

View GradientStore::shard_of(GroupState& state, const Segment& segment) {
  const Range shard = own(segment);
  if (options_.whole) return part(sums(state), options_.policy.kept, shard);
  const int64_t begin = segment.offset / communicator_.size();
  return part(state.kept, state.dtype, {begin, begin + shard.size()});
}

View GradientStore::shard_part(const ShardGroup& group, SegmentKind kind, Range range) {
  const Segment& segment = group.segment(kind);
  return shard_of(states_[group], segment)
      .narrow(0, range.begin - own(segment).begin, range.size());
}

int64_t GradientStore::numel(const ShardGroup& group, bool on_device) const {
  int64_t numel = 0;
  for (const OwnedRange& slice : options_.slices) {
    const bool is_there = (slice.tier == Tier::device) == on_device;
    if (slice.group == group.index() && is_there) numel += slice.range.size();
  }
  return numel;
}

Event GradientStore::send_off(const ShardGroup& group, GroupState& state) {
  if (options_.swapped != nullptr) {
    const Event left = send_to_swap(group);
    state.work = comm::Work(left);
    return left;
  }
  const bool adds = adds_in_host(group);
  const Event left = host_->send(
      group.index(),
      [&](const OwnedRange& slice) { return shard_part(group, slice.segment, slice.range); },
      {.is_first = !adds || is_first(), .is_last = !adds || is_last()});
  state.work = comm::Work(host_->arrived(group.index()));
  return left;
}

SwappedGradients::OnDevice GradientStore::tile_of(const ShardGroup& group) {
  return [this, &group](const Tile& tile) { return shard_part(group, tile.segment, tile.range); };
}

Event GradientStore::send_to_swap(const ShardGroup& group) {
  for (const OwnedRange& slice : options_.slices) {
    if (!is_last() || !on_sums_ || slice.group != group.index()) continue;
    on_sums_(slice, shard_part(group, slice.segment, slice.range),
             context_.stream(StreamRole::reduce));
  }
  return options_.swapped->send(group.index(), tile_of(group));
}

}  // namespace zinc::zero
