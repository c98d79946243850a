#include "zero/program/check.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace zinc::zero {
namespace {

// Goes through the passes of one micro-batch, and the step behind the last one, or through an
// evaluation, and tracks the state of each group.
class Proof {
 public:
  Proof(std::string name, const RewriteInputs& inputs)
      : name_(std::move(name)), inputs_(inputs), states_(inputs.groups.size()) {}

  // The update of the step before is under way, as far as `step` has brought it.
  void expect_update(const Phase& step) {
    decide();
    is_late_ = true;
    for (const Place& place : step) {
      for (const auto* ops : {&place.before, &place.after}) {
        for (const Op& op : *ops) {
          if (op.kind == OpKind::update || op.kind == OpKind::publish) take(op);
        }
      }
    }
  }
  // Groups that are gathered when the passes begin, and groups that are when they end.
  void expect_gathered(const std::set<int>& before, const std::set<int>& after) {
    for (const int group : before) states_[group].gathered = true;
    stay_ = after;
  }
  void expect_reductions(int64_t together, bool is_last) {
    reduces_ = true;
    is_last_ = is_last;
    for (State& state : states_) state.done.assign(static_cast<size_t>(together), 0);
  }

  void run(const std::vector<const Place*>& timeline) {
    for (const Place* place : timeline) go_through(*place);
    finish();
  }

  // Goes through the step, which follows the passes of its last micro-batch.
  void run_step(const Phase& step) {
    name_ = "step";
    is_late_ = false;
    in_step_ = true;
    for (const Place& place : step) go_through(place);
    if (!normed_) fail("the norm is missing");
    if (!decided_) fail("nothing decides over the step");
    // With an update beside the next forward pass, that pass publishes the values.
    if (inputs_.policy.update != UpdateTime::beside_forward) require_published();
  }

 private:
  // State of the current update, or of the last one.
  enum class Update : uint8_t { none, due, begun, published };
  enum class Matrices : uint8_t { none, directed, steps };
  struct State {
    bool gathered = false;
    Update update = Update::none;
    Matrices matrices = Matrices::none;
    int pins = 0;
    std::vector<int> done;  // finished gradients, by micro-batch side by side
    int64_t reduced = 0;    // micro-batches
  };

  void go_through(const Place& place) {
    place_ = &place;
    for (const Op& op : place.before) {
      refuse(place.event.kind == EventKind::release, "an op ahead of a release", op);
      take(op);
    }
    arrive(place.event);
    for (const Op& op : place.after) {
      refuse(place.event.kind == EventKind::release && op.kind != OpKind::release,
             "only releases may stand behind a release", op);
      take(op);
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(
        str("step program, ", name_, ", at ", describe(place_->event, inputs_.groups), ": ", what));
  }
  void refuse(bool wrong, std::string_view why, const Op& op) const {
    if (wrong) fail(str(describe(op, inputs_.groups), ": ", why));
  }

  void take(const Op& op) {
    refuse(op.group < 0 || op.group >= static_cast<int>(states_.size()), "there is no such group",
           {op.kind, 0});
    State& state = states_[op.group];
    const bool is_of_passes = op.kind < OpKind::norm && op.kind != OpKind::read;
    refuse(in_step_ && is_of_passes, "it has its place in a pass", op);
    switch (op.kind) {
      case OpKind::read:
        return;
      case OpKind::gather:
        refuse(!inputs_.policy.shards_parameters, "groups are whole on every rank", op);
        refuse(state.gathered, "the group is gathered already", op);
        refuse(is_outdated(state), "the group's update was not published", op);
        state.gathered = true;
        return;
      case OpKind::release:
        refuse(!state.gathered, "the group is not gathered", op);
        refuse(state.pins > 0, "the group is in use", op);
        state.gathered = false;
        return;
      case OpKind::reduce:
        return reduce(op, state);
      case OpKind::norm:
        refuse(!in_step_, "it has its place in the step", op);  // behind all reductions
        refuse(normed_, "there is one in a step", op);
        normed_ = true;
        return;
      case OpKind::decide:
        return decide(op);
      case OpKind::direct:
        return direct(op, state);
      case OpKind::transform:
        return transform(op);
      case OpKind::update:
        return update(op, state);
      case OpKind::publish:
        return publish(op, state);
      case OpKind::join:
        refuse(state.update != Update::published, "the group was not published", op);
        return;
    }
  }

  void decide(const Op& op) {
    const bool by_norm = inputs_.policy.update != UpdateTime::during_backward;
    refuse(decided_, "there is one in a step", op);
    refuse(by_norm && !normed_, "the norm, or the check for overflows, decides, and is not there",
           op);
    refuse(!in_step_ && !is_last_, "more micro-batches of the step are to come", op);
    decided_ = true;
    decide();
  }
  void decide() {
    for (State& state : states_) state.update = Update::due;
    next_published_ = 0;
  }

  void direct(const Op& op, State& state) {
    refuse(!in_step_, "it has its place in the step", op);
    refuse(!decided_, "nothing has decided yet", op);
    refuse(!has_whole(inputs_.groups[op.group]), "the group has no matrices", op);
    refuse(state.matrices != Matrices::none, "its directions are made already", op);
    // Their steps would be lost, and tiles in swap space have one order in both rounds.
    refuse(std::ranges::any_of(states_, has_steps_left),
           "groups of the transform before it are not updated yet", op);
    state.matrices = Matrices::directed;
    directed_.push_back(op.group);
  }

  static bool has_steps_left(const State& state) {
    return state.matrices == Matrices::steps && state.update == Update::due;
  }

  void transform(const Op& op) {
    refuse(directed_.empty() || directed_.back() != op.group,
           "it stands for the group whose directions were made last", op);
    for (const int group : std::exchange(directed_, {})) states_[group].matrices = Matrices::steps;
  }

  void update(const Op& op, State& state) {
    refuse(has_whole(inputs_.groups[op.group]) && state.matrices != Matrices::steps,
           "the steps of its matrices are not made", op);
    refuse(inputs_.groups[op.group].num_trained_parameters() == 0, "the group is not trained", op);
    refuse(state.update == Update::none || (!is_late_ && !decided_), "nothing has decided yet", op);
    refuse(state.update != Update::due, "its update has begun already", op);
    refuse(!is_late_ && state.reduced < static_cast<int64_t>(state.done.size()),
           "its gradients are not reduced", op);
    refuse(state.pins > 0, "the group is in use", op);
    state.update = Update::begun;
  }

  void publish(const Op& op, State& state) {
    refuse(!in_step_ && !is_late_, "no update is under way that this pass may end", op);
    refuse(!is_late_ && !decided_, "nothing has decided yet", op);
    refuse(next_published_ >= inputs_.use_order.size() ||
               inputs_.use_order[next_published_] != op.group,
           "groups are published in the order of their first use, each once", op);
    const bool is_trained = inputs_.groups[op.group].num_trained_parameters() > 0;
    refuse(is_trained && state.update == Update::due, "the group was not updated", op);
    ++next_published_;
    state.update = Update::published;
  }

  // Whether the group's values are in the midst of an update, or too old.
  bool is_outdated(const State& state) const {
    return state.update == Update::begun || (is_late_ && state.update == Update::due);
  }

  void reduce(const Op& op, State& state) {
    refuse(!reduces_, "this micro-batch is not reduced", op);
    refuse(op.micro_batch < 0 || op.micro_batch >= static_cast<int64_t>(state.done.size()),
           "there is no such micro-batch", op);
    refuse(next_reduced_ >= inputs_.reduce_order.size(), "all groups are reduced", op);
    const int turn = inputs_.reduce_order[next_reduced_];
    refuse(turn != op.group || state.reduced != op.micro_batch,
           str("it is the turn of micro-batch ", states_[turn].reduced, " of ",
               inputs_.groups[turn].name()),
           op);
    const bool is_done = state.done[static_cast<size_t>(op.micro_batch)] ==
                         inputs_.groups[op.group].num_trained_parameters();
    // A parameter that took no part counts as zero once the pass is over.
    refuse(!is_done && place_->event.kind != EventKind::end, "its gradients are not finished", op);
    if (++state.reduced == static_cast<int64_t>(state.done.size())) ++next_reduced_;
  }

  void arrive(const StepEvent& event) {
    State& state = states_[event.parameter.group];
    switch (event.kind) {
      case EventKind::use:
        if (inputs_.policy.shards_parameters && !state.gathered) {
          fail(str(inputs_.groups[event.parameter.group].name(), " is not gathered"));
        }
        if (is_outdated(state)) {
          fail(str("the update of ", inputs_.groups[event.parameter.group].name(),
                   " was not published"));
        }
        ++state.pins;
        return;
      case EventKind::release:
        --state.pins;
        return;
      case EventKind::gradient_done:
        if (reduces_) ++state.done[static_cast<size_t>(event.micro_batch)];
        return;
      case EventKind::begin:
      case EventKind::end:
        return;
    }
  }

  void finish() const {
    for (size_t g = 0; g < states_.size(); ++g) {
      const std::string& group = inputs_.groups[g].name();
      const bool stays = stay_.contains(static_cast<int>(g));
      if (states_[g].gathered && !stays) fail(str(group, " is gathered still"));
      if (!states_[g].gathered && stays) {
        fail(str(group, " is not gathered, but resident: the next micro-batch counts on it"));
      }
    }
    if (is_late_) require_published();
    if (reduces_ && next_reduced_ < inputs_.reduce_order.size()) {
      fail(str(inputs_.groups[inputs_.reduce_order[next_reduced_]].name(), " was not reduced"));
    }
  }

  void require_published() const {
    for (size_t g = 0; g < states_.size(); ++g) {
      if (states_[g].update == Update::published) continue;
      fail(str("the update of ", inputs_.groups[g].name(), " was not published"));
    }
  }

  std::string name_;
  const RewriteInputs& inputs_;
  ByGroup<State> states_;
  std::set<int> stay_;
  bool reduces_ = false, is_last_ = false;  // micro-batch of its step
  bool is_late_ = false;                    // the update of the step before is under way
  bool in_step_ = false, normed_ = false, decided_ = false;
  std::vector<int> directed_;  // groups whose directions no transform has taken yet
  size_t next_published_ = 0;  // in the order of uses
  size_t next_reduced_ = 0;    // in the order of reductions
  const Place start_{};
  const Place* place_ = &start_;
};

void require_same_events(const std::string& name, const Phase& phase, const Phase& recorded,
                         const RewriteInputs& inputs) {
  require(phase.size() == recorded.size(), "step program, ", name, ": ", phase.size(),
          " places instead of the record's ", recorded.size());
  for (size_t i = 0; i < phase.size(); ++i) {
    require(phase[i].event == recorded[i].event, "step program, ", name, ": place ", i, " is ",
            describe(phase[i].event, inputs.groups), " instead of ",
            describe(recorded[i].event, inputs.groups));
  }
}

int64_t side_by_side(const Phase& backward) {
  int64_t most = 0;
  for (const Place& place : backward) most = std::max(most, place.event.micro_batch);
  return most + 1;
}

// The passes of a micro-batch, over all parts of the model that the rank has.
std::vector<const Place*> passes_of(const Program& program, MicroBatchKind kind) {
  std::vector<const Place*> passes;
  const auto add = [&passes](const Phase& phase) {
    for (const Place& place : phase) passes.push_back(&place);
  };
  for (; program.bodies.contains(kind); ++kind.part) add(program.bodies.at(kind).forward);
  while (kind.part-- > 0) {
    add(program.bodies.at(kind).backward);
    add(program.bodies.at(kind).weights);
  }
  return passes;
}

// Checks the rank's order among the orders of the other ranks.
void check_order(const Program& program, const PipelinePlace& place) {
  if (place.size == 1) {
    require(program.pipeline.empty(), "step program: an order of passes in no pipeline");
    return;
  }
  parallel::PipelineOrders orders = parallel::pipeline_orders(place.shape());
  orders[static_cast<size_t>(place.rank)] = program.pipeline;
  parallel::check_pipeline(orders, place.micro_batches);
}

}  // namespace

void check(const Program& program, const Program& recorded, const RewriteInputs& inputs) {
  require_same_events("evaluation", program.evaluation, recorded.evaluation, inputs);
  std::vector<const Place*> evaluation;
  for (const Place& place : program.evaluation) evaluation.push_back(&place);
  Proof("evaluation", inputs).run(evaluation);
  for (const int group : program.resident) {
    require(group >= 0 && group < static_cast<int>(inputs.groups.size()),
            "step program: there is no group ", group, " to be resident");
  }
  check_order(program, inputs.policy.pipeline);
  require_same_events("step", program.step, recorded.step, inputs);
  require(program.bodies.size() == recorded.bodies.size(), "step program: ", program.bodies.size(),
          " kinds of micro-batches instead of the record's ", recorded.bodies.size());
  for (const auto& [kind, body] : program.bodies) {
    const std::string name = str(name_of(kind), " micro-batch");
    const Body& like = recorded.bodies.at(kind);
    require_same_events(name + ", forward", body.forward, like.forward, inputs);
    require_same_events(name + ", backward", body.backward, like.backward, inputs);
    require_same_events(name + ", weight gradients", body.weights, like.weights, inputs);
    if (kind.part > 0) continue;  // proven along with the first part
    Proof proof(name, inputs);
    const std::set<int> none;
    proof.expect_gathered(kind.first ? none : program.resident,
                          kind.last ? none : program.resident);
    if (kind.first && inputs.policy.update == UpdateTime::beside_forward) {
      proof.expect_update(program.step);
    }
    if (kind.last || inputs.policy.reduces_every) {
      proof.expect_reductions(side_by_side(body.backward), kind.last);
    }
    proof.run(passes_of(program, kind));
    if (kind.last) proof.run_step(program.step);
  }
}

}  // namespace zinc::zero
