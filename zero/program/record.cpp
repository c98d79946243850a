#include "zero/program/record.h"

#include <algorithm>
#include <utility>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/recompute.h"
#include "autograd/remade.h"
#include "core/context.h"
#include "core/error.h"
#include "core/philox.h"
#include "core/work_log.h"
#include "nn/buffer.h"
#include "parallel/meta_source.h"
#include "parallel/pipeline_cut.h"
#include "parallel/vertical_passes.h"

namespace zinc::zero {
namespace {

// Records the calls that it gets.
class RecordingSource : public parallel::MetaSource {
 public:
  RecordingSource(const ShardGroups& groups, Context& context, const WorkLog& log)
      : groups_(groups), context_(context), log_(log) {}

  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    last_used_ = &parameter;
    add(EventKind::use, parameter);
    return parallel::MetaSource::acquire(parameter);
  }
  void gradient_done(autograd::Parameter& parameter) override {
    add(EventKind::gradient_done, parameter);
  }
  bool defers(const autograd::Parameter& parameter) const override {
    return may_defer(groups_[parameter.index().group]);
  }
  // The following events belong to this one of the micro-batches side by side.
  void enter(int64_t micro_batch) { micro_batch_ = micro_batch; }
  // The model's position, for messages: ", after h.0.ln_1.weight was used".
  std::string place() const {
    return last_used_ == nullptr ? std::string() : str(", after ", last_used_->name(), " was used");
  }
  // The events since the last call.
  Phase take() {
    Phase phase{{.event = {.kind = EventKind::begin}}};
    std::move(places_.begin(), places_.end(), std::back_inserter(phase));
    phase.push_back({.event = {.kind = EventKind::end}, .work = work()});
    phase.front().work.activation_bytes = begins_with_;
    begins_with_ = phase.back().work.activation_bytes;
    places_.clear();
    return phase;
  }

 protected:
  void release(autograd::Parameter& parameter) noexcept override {
    add(EventKind::release, parameter);
  }

 private:
  void add(EventKind kind, const autograd::Parameter& parameter) {
    places_.push_back({.event = {kind, parameter.index(), micro_batch_}, .work = work()});
  }
  // The work since the last call.
  RecordedWork work() {
    RecordedWork done{.activation_bytes =
                          context_.allocator().report().at(Tier::device, Label::activations).live};
    for (; logged_ < log_.entries().size(); ++logged_) {
      const WorkLog::Entry& entry = log_.entries()[logged_];
      if (entry.action != WorkLog::Action::work) continue;
      done.flops += entry.cost.flops;
      done.bytes += entry.cost.bytes_read + entry.cost.bytes_written;
    }
    return done;
  }

  const ShardGroups& groups_;
  Context& context_;
  const WorkLog& log_;
  Phase places_;
  const autograd::Parameter* last_used_ = nullptr;
  int64_t micro_batch_ = 0;
  int64_t begins_with_ = 0;  // bytes of activations
  size_t logged_ = 0;        // entries that were counted
};

// The backward phases of a micro-batch; the passes over the last part come first.
std::vector<const Phase*> backward_phases(const Record& record) {
  std::vector<const Phase*> phases;
  for (auto body = record.bodies.rbegin(); body != record.bodies.rend(); ++body) {
    phases.insert(phases.end(), {&body->backward, &body->weights});
  }
  return phases;
}

std::vector<int> order_of_completion(const ShardGroups& groups, const Record& record) {
  ByGroup<int> missing;
  for (const ShardGroup& group : groups) missing.push_back(group.num_trained_parameters());
  std::vector<int> order;
  for (const Phase* phase : backward_phases(record)) {
    for (const Place& place : *phase) {
      if (place.event.kind != EventKind::gradient_done) continue;
      const int group = place.event.parameter.group;
      if (--missing[group] == 0) order.push_back(group);
    }
  }
  for (int group = static_cast<int>(groups.size()) - 1; group >= 0; --group) {
    if (missing[group] > 0) order.push_back(group);
  }
  return order;
}

std::vector<int> order_of_use(const ShardGroups& groups, const Record& record) {
  std::vector<int> order;
  const auto add = [&](int group) {
    if (std::find(order.begin(), order.end(), group) == order.end()) order.push_back(group);
  };
  const auto add_uses = [&](const Phase& forward) {
    for (const Place& place : forward) {
      if (place.event.kind == EventKind::use) add(place.event.parameter.group);
    }
  };
  for (const Body& body : record.bodies) add_uses(body.forward);
  if (record.bodies.empty()) add_uses(record.evaluation);
  for (const ShardGroup& group : groups) add(group.index());
  return order;
}

// Groups that no part uses are made zero in the first part's passes, the last of a micro-batch.
ByGroup<BackwardTurn> turns_of(const ShardGroups& groups, const Record& record, bool splits) {
  ByGroup<BackwardTurn> turns;
  for (const ShardGroup& group : groups) {
    turns.push_back({.deferred = splits && may_defer(group)});
  }
  for (size_t part = 0; part < record.bodies.size(); ++part) {
    for (const Place& place : record.bodies[part].forward) {
      if (place.event.kind != EventKind::use) continue;
      turns[place.event.parameter.group].part = static_cast<int>(part);
    }
  }
  return turns;
}

// The forward passes over this rank's parts, one phase each. `on_output(part, x)` gets what a part
// gives.
template <class OnOutput>
std::vector<Phase> record_forwards(parallel::PipelineCut& cut, const nn::Batch& batch,
                                   RecordingSource& recorder,
                                   std::vector<parallel::StagePass>& passes,
                                   const OnOutput& on_output) {
  std::vector<Phase> phases;
  for (size_t i = 0; i < passes.size(); ++i) {
    const parallel::PipelinePart& part = cut.part(static_cast<int>(i));
    const parallel::StageInput& input = cut.input_of(batch, static_cast<int>(i));
    const nn::TensorList x = passes[i].forward(cut.model(), part.segments, batch,
                                               parallel::take_room(input.tensors), input.tensors);
    phases.push_back(recorder.take());
    on_output(part, x);
  }
  return phases;
}

// One phase of the forward passes over all parts.
Phase joined(const std::vector<Phase>& forwards) {
  Phase all;
  for (const Phase& forward : forwards) {
    const auto begin = forward.begin() + (all.empty() ? 0 : 1);
    if (!all.empty()) all.pop_back();
    all.insert(all.end(), begin, forward.end());
  }
  return all;
}

// The passes over this rank's parts, forward over all of them first.
void record_stages(parallel::PipelineCut& cut, const nn::Batch& batch, RecordingSource& recorder,
                   bool splits, Record& record) {
  std::vector<parallel::StagePass> passes(static_cast<size_t>(cut.num_parts()));
  std::vector<nn::TensorList> gradients;
  const auto make_gradients = [&](const parallel::PipelinePart& part, const nn::TensorList& x) {
    nn::TensorList& of_part = gradients.emplace_back();
    for (size_t t = 0; t < x.size(); ++t) {
      of_part.push_back(part.output_gradients[t] ? Tensor::empty(x[t].shape(), x[t].dtype())
                                                 : Tensor());
    }
  };
  const std::vector<Phase> forwards = record_forwards(cut, batch, recorder, passes, make_gradients);
  record.evaluation = joined(forwards);
  for (const Phase& forward : forwards) record.bodies.push_back({.forward = forward});
  for (size_t i = passes.size(); i-- > 0;) {
    passes[i].backward(std::move(gradients[i]), splits);
    record.bodies[i].backward = recorder.take();
    if (!splits) continue;
    passes[i].weights();
    record.bodies[i].weights = recorder.take();
  }
}

// Calls `passes` with a recorder and a batch, on a meta device.
template <class Passes>
void on_meta_device(nn::Model& model, const ShardGroups& groups, const ExampleBatch& example,
                    const Passes& passes) {
  const bool remakes = autograd::Mode::current().remakes;
  autograd::SavedTensorStore* const inputs = autograd::Mode::current().recompute_store;
  const bool is_largest = nn::LargestBatchScope::is_on();
  WorkLog log;
  Context context(parallel::meta_context(&log));
  const ContextScope scope(context);
  const autograd::RemakeScope remakes_as_outside(remakes);
  const autograd::RecomputeInputScope saves_as_outside(inputs);
  const nn::LargestBatchScope largest_as_outside(is_largest);
  RecordingSource recorder(groups, context, log);
  const parallel::SourceScope sources(model, recorder);
  serve(model, groups, recorder);

  nn::Batch batch = example();
  batch.global_micro_batch = 0;
  try {
    passes(recorder, batch);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        str(error.what(),
            " (while the engine recorded the model on a meta device, which has shapes and ",
            "no memory, with a batch of ", to_string(batch.tensors), recorder.place(), ")"));
  }
}

// All micro-batches of a step side by side.
void record_side_by_side(nn::Model& model, const nn::Batch& batch, int64_t together,
                         RecordingSource& recorder, Record& record) {
  parallel::VerticalPasses passes(
      model, 0,
      std::vector<parallel::SideBySide>(static_cast<size_t>(together), {.batch = &batch}));
  const auto enter = [&](int64_t i) { recorder.enter(i); };
  const int64_t before = autograd::num_recomputed();
  passes.forward(enter);
  record.recomputes = autograd::num_recomputed() > before;
  record.bodies.front().forward = recorder.take();
  passes.backward(enter);
  record.bodies.front().backward = recorder.take();
}

}  // namespace

Record record_step(nn::Model& model, const ShardGroups& groups, const ExampleBatch& example,
                   int64_t together, parallel::PipelineCut* cut, bool splits) {
  Record record;
  on_meta_device(model, groups, example, [&](RecordingSource& recorder, const nn::Batch& batch) {
    if (cut != nullptr) return record_stages(*cut, batch, recorder, splits, record);
    {
      const Tensor loss = model.loss(batch);
      record.recomputes = autograd::num_recomputed() > 0;
      record.evaluation = recorder.take();
      if (together == 1) autograd::backward(loss);
      record.bodies = {{.forward = record.evaluation, .backward = recorder.take()}};
    }
    if (together > 1) record_side_by_side(model, batch, together, recorder, record);
  });
  record.reduce_order = order_of_completion(groups, record);
  record.use_order = order_of_use(groups, record);
  record.turns = turns_of(groups, record, splits);
  return record;
}

Record record_evaluation(nn::Model& model, const ShardGroups& groups, const ExampleBatch& example,
                         parallel::PipelineCut* cut) {
  Record record;
  on_meta_device(model, groups, example, [&](RecordingSource& recorder, const nn::Batch& batch) {
    const autograd::NoGrad no_grad;
    if (cut == nullptr) {
      model.loss(batch);
      record.evaluation = recorder.take();
    } else {
      std::vector<parallel::StagePass> passes(static_cast<size_t>(cut->num_parts()));
      record.evaluation = joined(record_forwards(*cut, batch, recorder, passes,
                                                 [](const auto&, const nn::TensorList&) {}));
    }
  });
  record.use_order = order_of_use(groups, record);
  return record;
}

Program program_of(const Record& record, bool side_by_side) {
  Program program{.evaluation = record.evaluation};
  program.step = {{.event = {.kind = EventKind::begin}}, {.event = {.kind = EventKind::end}}};
  for (const bool first : {true, false}) {
    for (const bool last : {true, false}) {
      if (side_by_side && !(first && last)) continue;
      for (size_t part = 0; part < record.bodies.size(); ++part) {
        program.bodies.emplace(MicroBatchKind{first, last, static_cast<int>(part)},
                               record.bodies[part]);
      }
    }
  }
  return program;
}

uint64_t hash_of(const ShardGroups& groups) {
  uint64_t hash = hash_text("zinc layout 1");
  const auto mix = [&hash](uint64_t value) { hash = combine_bits(hash, value); };
  for (const ShardGroup& group : groups) {
    mix(hash_text(group.name()));
    mix(static_cast<uint64_t>(group.dtype()));
    mix(static_cast<uint64_t>(group.numel()));
    for (const Placement& placement : group.placements()) {
      mix(hash_text(placement.parameter->name()));
      mix(static_cast<uint64_t>(placement.offset));
      mix(static_cast<uint64_t>(placement.parameter->numel()));
    }
  }
  return hash;
}

}  // namespace zinc::zero
