#include "zero/run/runner.h"

#include <utility>

#include "core/error.h"
#include "zero/layout/backward_turn.h"

namespace zinc::zero {
namespace {

// Whether an op of a backward pass needs sums of gradients.
bool needs_sums(const Op& op) { return op.kind == OpKind::reduce || op.kind == OpKind::update; }

}  // namespace

Runner::Runner(const Parts& parts) : parts_(parts) {}

const Runner::Training& Runner::training() const {
  require(parts_.training.has_value(),
          "engine: it only computes, and a backward pass needs gradients; make an engine without "
          "EngineOptions::computes_only");
  return *parts_.training;
}

void Runner::require_open() const {
  require(open_,
          "engine: its weights are the model's own since release_to_model(); make a new engine to "
          "train on");
}

void Runner::require_pass(const autograd::Parameter& parameter) const {
  require(passes_ > 0, "parameter '", parameter.name(),
          "' belongs to an engine: call engine.forward(), backward() or evaluate(), or the module "
          "itself inside engine.predict([&] { return ...; })");
  require(parameter.index() != kInNoGroup, "parameter '", parameter.name(),
          "' was not part of the model when the engine was made");
}

void Runner::begin_evaluation(Follows follows) {
  require_open();
  require(passes_ == 0 || follows == Follows::uses,
          "engine.evaluate() and engine.next_logits() are passes of their own: not inside "
          "engine.predict(); call the model's functions there");
  if (parts_.training) parts_.training->update.finish();
  begin(parts_.program.evaluation, PassKind::forward, follows == Follows::program);
}

void Runner::begin_forward(const MicroBatchKind& kind) {
  require_open();
  MicroBatchKind of = kind;
  // While an update is pending this counts as the first pass, also if the passes before it were
  // given up.
  if (training().update.is_pending()) of.first = true;
  begin(parts_.program.bodies.at(of).forward, PassKind::forward);
}

void Runner::begin_backward(const MicroBatchKind& kind, bool of_weights) {
  is_last_ = kind.last;
  const Body& body = parts_.program.bodies.at(kind);
  if (of_weights) return begin(body.weights, PassKind::weights);
  next_group_ = 0;
  next_micro_batch_ = 0;
  held_.clear();
  begin(body.backward, PassKind::backward);
}

const char* Runner::name_of(PassKind kind) {
  switch (kind) {
    case PassKind::forward:
      return "forward";
    case PassKind::backward:
      return "backward";
    case PassKind::weights:
      return "weight gradient";
  }
  return "?";
}

void Runner::begin(const Phase& phase, PassKind kind, bool follows_program) {
  is_free_ = parts_.is_dynamic || !follows_program;
  used_group_ = -1;
  kind_ = kind;
  if (!goes_back()) last_used_ = nullptr;
  if (is_free_ && parts_.lockstep != nullptr) parts_.lockstep->begin();
  phase_ = follows_program ? &phase : nullptr;
  next_ = 0;
  parts_.weights.begin_pass(goes_back());
  arrive(EventKind::begin, {});
  leave();
}

void Runner::end() {
  if (!is_free_) {
    skip_releases();
    // Evaluation stands for every pass without a backward pass: next_logits() may use less.
    const bool may_be_short = phase_ == &parts_.program.evaluation;
    if (!may_be_short && next_ + 1 < phase_->size()) leave_record({.kind = EventKind::end});
    for (const auto* ops : {&phase_->back().before, &phase_->back().after}) {
      for (const Op& op : *ops) {
        if (!goes_back() || !needs_sums(op)) run(op, true);
      }
    }
    if (parts_.on_place) parts_.on_place(*phase_, phase_->size() - 1);
  }
  if (is_free_ && parts_.lockstep != nullptr) parts_.lockstep->end();
}

void Runner::end_backward(const MicroBatchKind& kind, bool of_weights) {
  is_last_ = kind.last;
  if (parts_.is_dynamic) {
    training().gradients.complete_micro_steps();
    return reduce_in_turn();
  }
  const Body& body = parts_.program.bodies.at(kind);
  end_phase(of_weights ? body.weights : body.backward);
}

void Runner::end_phase(const Phase& phase) {
  // A pass that was launched as a graph reduces at its end.
  if (phase_ != &phase) next_ = phase.size() - 1;
  phase_ = &phase;
  for (; next_ < phase.size(); ++next_) {
    run_late(phase[next_].before);
    run_late(phase[next_].after);
  }
  next_ = phase.size() - 1;
  training().gradients.complete_micro_steps();
}

StepResult Runner::run_step() {
  StepResult result;
  const Phase& step = parts_.program.step;
  for (size_t i = 0; i < step.size(); ++i) {
    run(step[i].before, true);
    if (step[i].event.kind == EventKind::end) result = training().step.end();
    run(step[i].after, true);
    if (parts_.on_place) parts_.on_place(step, i);
  }
  return result;
}

autograd::ParameterGuard Runner::acquire(autograd::Parameter& parameter) {
  require_pass(parameter);
  const ParameterIndex index = parameter.index();
  last_used_ = &parameter;
  if (is_free_ && parts_.lockstep != nullptr) parts_.lockstep->use(index.group);
  if (phase_ == nullptr && used_group_ != index.group) {
    if (used_group_ >= 0) parts_.weights.release(used_group_);
    used_group_ = index.group;
  }
  arrive(EventKind::use, index);
  if (parts_.training) parts_.training->update.advance();
  parts_.weights.gather_for_use(index.group);  // where the program did not gather it
  leave();
  return {*this, parameter, parts_.weights.pin(index)};
}

void Runner::release(autograd::Parameter& parameter) noexcept {
  const ParameterIndex index = parameter.index();
  parts_.weights.unpin(index);
  if (is_free_ || phase_ == nullptr || next_ >= phase_->size()) return;
  const Place& place = (*phase_)[next_];
  if (place.event.kind != EventKind::release || place.event.parameter != index) return;
  for (const Op& op : place.after) parts_.weights.release(op.group);
  ++next_;
}

autograd::GradientTarget Runner::gradient(autograd::Parameter& parameter) {
  require_pass(parameter);
  return training().gradients.target(parameter.index());
}

void Runner::gradient_done(autograd::Parameter& parameter) {
  const ParameterIndex index = parameter.index();
  last_used_ = &parameter;
  arrive(EventKind::gradient_done, index);
  training().gradients.gradient_done(index);
  leave();
  if (parts_.is_dynamic && !parts_.policy.reduces_after_backward) reduce_in_turn();
  training().update.advance();
}

bool Runner::defers(const autograd::Parameter& parameter) const {
  return may_defer(parts_.groups[parameter.index().group]);
}

void Runner::arrive(EventKind kind, ParameterIndex parameter) {
  if (is_free_) return;
  skip_releases();
  const StepEvent& planned = (*phase_)[next_].event;
  if (planned.kind != kind || planned.parameter != parameter) leave_record({kind, parameter});
  run((*phase_)[next_].before, false);
}

void Runner::leave_record(const StepEvent& event) const {
  const StepEvent& planned = (*phase_)[next_].event;
  const std::string found = describe(event, parts_.groups);
  const std::string where =
      planned.kind == EventKind::end
          ? str(found, " after the recorded end (", phase_->size() - 2, " events)")
          : str("at event ", next_, ": ", found, " instead of ", describe(planned, parts_.groups));
  throw InvalidArgument(str("the model left its recorded ", name_of(kind_), " pass ", where,
                            "; a model whose control flow changes from step to step needs "
                            "EngineOptions::dynamic_model: zinc::initialize(model, config, world, "
                            "{.dynamic_model = true})"));
}

// Releases that came earlier, or will come later than recorded.
void Runner::skip_releases() {
  while (next_ < phase_->size() && (*phase_)[next_].event.kind == EventKind::release) {
    run((*phase_)[next_++].after, false);
  }
}

void Runner::leave() {
  if (is_free_) return;
  run((*phase_)[next_].after, true);
  if (parts_.on_place) parts_.on_place(*phase_, next_);
  ++next_;
}

void Runner::run(const std::vector<Op>& ops, bool ahead_of_use) {
  for (const Op& op : ops) run(op, ahead_of_use);
}

void Runner::run(const Op& op, bool ahead_of_use) {
  switch (op.kind) {
    case OpKind::read:
      return parts_.weights.read(op.group);
    case OpKind::gather:
      return parts_.weights.gather(op.group,
                                   ahead_of_use ? TraceKind::prefetch : TraceKind::gather);
    case OpKind::release:
      return parts_.weights.release(op.group);
    case OpKind::reduce:
      return training().gradients.reduce(op.group, op.micro_batch);
    case OpKind::norm:
      training().step.norm();
      return run(std::exchange(held_, {}), true);
    case OpKind::decide:
      if (!training().step.decide()) held_.push_back(op);
      return;
    case OpKind::direct:
      return training().update.direct(op.group);
    case OpKind::transform:
      return training().update.transform(op.group);
    case OpKind::update:
      if (held_.empty()) return training().update.update(op.group);
      return held_.push_back(op);
    case OpKind::publish:
      return training().update.publish(op.group);
    case OpKind::join:
      return training().update.join(op.group);
  }
}

void Runner::run_late(const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    if (needs_sums(op)) run(op, false);
  }
}

void Runner::reduce_in_turn() {
  if (!is_last_ && !parts_.policy.reduces_every) return;
  const std::vector<int>& order = training().reduce_order;
  for (; next_group_ < order.size(); ++next_group_, next_micro_batch_ = 0) {
    const int group = order[next_group_];
    for (; next_micro_batch_ < training().gradients.together(); ++next_micro_batch_) {
      if (!training().gradients.is_complete(group, next_micro_batch_)) return;
      run({OpKind::reduce, group, next_micro_batch_}, false);
    }
  }
}

}  // namespace zinc::zero
