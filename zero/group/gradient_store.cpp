#include "zero/group/gradient_store.h"

#include "core/error.h"
#include "core/trace_marks.h"
#include "kernels/fill.h"

namespace zinc::zero {

GradientStore::GradientStore(const ShardGroups& groups, comm::Communicator& communicator,
                             Context& context, PhaseClock& clock, const MakeGroupSums& make_sums,
                             const GradientStoreOptions& options)
    : groups_(groups),
      context_(context),
      options_(options),
      reducer_(communicator, context, clock, options.reducer),
      states_(groups.size()) {
  for (const ShardGroup& group : groups) {
    GroupState& state = states_[group];
    state.sums = make_sums(group, reducer_);
    state.sums->begin(1);
    state.micro_steps.resize(1);
    state.in_step.assign(group.placements().size(), false);
  }
}

bool GradientStore::has_turn(const ShardGroup& group) const {
  return options_.turns.empty() || options_.turns[group] == turn_;
}

void GradientStore::begin_micro_steps(int64_t index, int64_t together, int64_t count,
                                      const BackwardTurn& turn) {
  // Buffers that stay are written again now. Others are from before a forward pass, and would only
  // lie beside those of this backward pass; in a pipeline none may have come between.
  if (reducer_.stays() || options_.turns.empty()) reducer_.let_go_of_all();
  begin_ = index;
  count_ = count;
  entered_ = 0;
  together_ = together;
  turn_ = turn;
  for (const ShardGroup& group : groups_) {
    if (!has_turn(group)) continue;
    GroupState& state = states_[group];
    bug_check(together == 1 || !state.sums->collects(),
              "sums kept over micro-batches are made one by one");
    state.sums->begin(together);
    state.micro_steps.assign(static_cast<size_t>(together),
                             {.seen = std::vector<bool>(state.in_step.size(), false)});
    if (index == 0) state.in_step.assign(state.in_step.size(), false);
  }
  if (options_.away != nullptr) options_.away->begin(index == 0);
}

autograd::GradientTarget GradientStore::target(ParameterIndex parameter, int64_t place) {
  GroupState& state = states_[parameter.group];
  MicroStepProgress& micro_step = state.micro_steps[static_cast<size_t>(place)];
  const auto position = static_cast<size_t>(parameter.position);
  const Placement& placement = groups_.at(parameter);
  const Range range = placement.range();
  const View all = state.sums->target(place);
  const bool seen = state.sums->collects() ? state.in_step[position] : micro_step.seen[position];
  state.in_step[position] = true;
  micro_step.seen[position] = true;
  return {.view = all.narrow(0, range.begin, range.size()).reshape(placement.parameter->shape()),
          .accumulate = seen};
}

void GradientStore::gradient_done(ParameterIndex parameter) {
  const ShardGroup& group = groups_.of(parameter);
  MicroStepProgress& micro_step = states_[group].micro_steps[static_cast<size_t>(entered_)];
  if (++micro_step.done == group.num_trained_parameters()) complete(group, entered_);
  if (options_.away != nullptr) options_.away->advance();
}

void GradientStore::complete_micro_steps() {
  for (const ShardGroup& group : groups_) {
    if (!has_turn(group)) continue;
    for (int64_t place = 0; place < together_; ++place) {
      if (!is_complete(group.index(), place)) complete(group, place);
    }
  }
  entered_ = 0;
}

bool GradientStore::is_complete(int group, int64_t i) const {
  return states_[group].micro_steps[static_cast<size_t>(i)].complete;
}

void GradientStore::reduce(int group, int64_t i) {
  if (!is_complete(group, i)) complete(groups_[group], i);
  const comm::Work reduced = of(group).sums->reduce(turn_of(i));
  trace_memory(context_);
  reducer_.end();
  if (!options_.overlap) reduced.wait_on(context_.compute());
}

GradientProgress GradientStore::progress() const {
  GradientProgress made;
  for (const GroupState& state : states_) {
    made.groups.push_back({.micro_step = state.micro_steps.front(), .in_step = state.in_step});
  }
  return made;
}

void GradientStore::resume(const GradientProgress& progress) {
  bug_check(reducer_.stays() && progress.groups.size() == states_.size(),
            "gradients that do not stay cannot be written again");
  for (size_t g = 0; g < states_.size(); ++g) {
    states_[g].in_step = progress.groups[g].in_step;
    states_[g].micro_steps.front() = progress.groups[g].micro_step;
  }
}

void GradientStore::discard() {
  discard_on_device();
  for (const ShardGroup& group : groups_) discard_away(group.index());
}

void GradientStore::discard_on_device() {
  for (GroupState& state : states_) {
    if (!reducer_.stays()) state.sums->discard();
  }
  if (options_.away != nullptr) options_.away->end_step();
}

void GradientStore::complete(const ShardGroup& group, int64_t place) {
  GroupState& state = states_[group];
  state.micro_steps[static_cast<size_t>(place)].complete = true;
  if (group.num_trained_parameters() == 0) return;
  zero_unused(group, place);
  state.sums->add(turn_of(place));
}

// Writes zeros for parameters that took no part in the loss.
void GradientStore::zero_unused(const ShardGroup& group, int64_t place) {
  const GroupState& state = states_[group];
  const bool collects = state.sums->collects();
  // A later micro-batch may still bring the gradient.
  if (collects && !turn_of(place).is_last()) return;
  const std::vector<bool> seen =
      collects ? state.in_step : state.micro_steps[static_cast<size_t>(place)].seen;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] || !is_trained(group.placements()[i].segment)) continue;
    require(options_.allow_unused, "parameter '", group.placements()[i].parameter->name(),
            "' took no part in the loss; freeze it, or set ignore_unused_parameters to true");
    const auto unused = target({.group = group.index(), .position = static_cast<int>(i)}, place);
    kernels::fill({.y = unused.view}, context_.compute());
  }
}

void GradientStore::finish() {
  reducer_.let_go_of_all();
  if (options_.away != nullptr) options_.away->await_all();
  for (GroupState& state : states_) state.sums->finish();
  for (GroupState& state : states_) {
    state.sums->work().wait_on(context_.compute());
    state.sums->finished();
  }
}

ConstView GradientStore::gradient(const OwnedRange& slice) {
  return slice.tier == Tier::device ? on_device(slice) : options_.away->read(slice);
}

}  // namespace zinc::zero
