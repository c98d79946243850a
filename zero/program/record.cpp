#include "zero/program/record.h"

#include <algorithm>
#include <utility>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/remade.h"
#include "core/context.h"
#include "core/error.h"
#include "core/philox.h"
#include "core/work_log.h"
#include "zero/program/meta_source.h"
#include "zero/program/pipeline_cut.h"
#include "zero/run/vertical_passes.h"

namespace zinc::zero {
namespace {

// Writes down what is asked of it.
class RecordingSource : public MetaSource {
 public:
  RecordingSource(const ParameterTable& table, Context& context, const WorkLog& log)
      : table_(table), context_(context), log_(log) {}

  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    last_used_ = &parameter;
    add(EventKind::use, parameter);
    return MetaSource::acquire(parameter);
  }
  void gradient_done(autograd::Parameter& parameter) override {
    add(EventKind::gradient_done, parameter);
  }
  // What follows is of this one of the micro-batches side by side.
  void enter(int64_t micro_batch) { micro_batch_ = micro_batch; }
  // Where the model is, for messages: ", after h.0.ln_1.weight was used".
  std::string place() const {
    return last_used_ == nullptr ? std::string()
                                 : concat(", after ", last_used_->name(), " was used");
  }
  // What came since the last call.
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
    places_.push_back({.event = {kind, table_.at(parameter), micro_batch_}, .work = work()});
  }
  // Since the last call.
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

  const ParameterTable& table_;
  Context& context_;
  const WorkLog& log_;
  Phase places_;
  const autograd::Parameter* last_used_ = nullptr;
  int64_t micro_batch_ = 0;
  int64_t begins_with_ = 0;  // bytes of activations
  size_t logged_ = 0;        // entries that were counted
};

std::vector<int> order_of_completion(const std::vector<ShardGroup>& groups, const Phase& backward) {
  std::vector<int> missing;
  for (const ShardGroup& group : groups) missing.push_back(group.num_trained_parameters());
  std::vector<int> order;
  for (const Place& place : backward) {
    if (place.event.kind != EventKind::gradient_done) continue;
    const int group = place.event.parameter.group;
    if (--missing[static_cast<size_t>(group)] == 0) order.push_back(group);
  }
  for (int group = static_cast<int>(groups.size()) - 1; group >= 0; --group) {
    if (missing[static_cast<size_t>(group)] > 0) order.push_back(group);
  }
  return order;
}

std::vector<int> order_of_use(const std::vector<ShardGroup>& groups, const Phase& forward) {
  std::vector<int> order;
  const auto add = [&](int group) {
    if (std::find(order.begin(), order.end(), group) == order.end()) order.push_back(group);
  };
  for (const Place& place : forward) {
    if (place.event.kind == EventKind::use) add(place.event.parameter.group);
  }
  for (const ShardGroup& group : groups) add(group.index());
  return order;
}

// The passes of this rank's stages; `between` them.
void record_stages(PipelineCut& cut, const nn::Batch& batch, const std::function<void()>& between) {
  const StageInput& input = cut.input_of(batch);
  parallel::StagePass pass;
  nn::TensorList x = pass.forward(cut.model(), cut.segments(), batch,
                                  parallel::take_room(input.tensors), input.tensors);
  between();
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = cut.output_gradients()[i] ? Tensor::empty(x[i].shape(), x[i].dtype()) : Tensor();
  }
  pass.backward(std::move(x));
}

}  // namespace

Record record_step(nn::Model& model, const std::vector<ShardGroup>& groups,
                   const ExampleBatch& example, int64_t together, PipelineCut* cut) {
  const bool remakes = autograd::Mode::current().remakes;
  WorkLog log;
  Context context(meta_context(&log));
  const ContextScope scope(context);
  const autograd::RemakeScope as_outside(remakes);
  const ParameterTable table(groups);
  RecordingSource recorder(table, context, log);
  const SourceScope sources(model, recorder);

  nn::Batch batch = example();
  batch.global_micro_batch = 0;
  Record record;
  const auto end_forward = [&] {
    record.evaluation = recorder.take();
    record.forward = record.evaluation;
  };
  try {
    if (cut != nullptr) {
      record_stages(*cut, batch, end_forward);
    } else {
      const Tensor loss = model.loss(batch);
      end_forward();
      if (together == 1) autograd::backward(loss);
    }
    record.backward = recorder.take();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(
        concat(error.what(),
               " (while the engine recorded the model on a meta device, which has shapes and ",
               "no memory, with a batch of ", to_string(batch.tensors), recorder.place(), ")"));
  }
  if (together > 1) {
    VerticalPasses passes(
        model, 0, std::vector<SideBySide>(static_cast<size_t>(together), {.batch = &batch}));
    const auto enter = [&](int64_t i) { recorder.enter(i); };
    passes.forward(enter);
    record.forward = recorder.take();
    passes.backward(enter);
    record.backward = recorder.take();
  }
  record.reduce_order = order_of_completion(groups, record.backward);
  record.use_order = order_of_use(groups, record.forward);
  return record;
}

Program program_of(const Record& record, bool side_by_side) {
  Program program{.evaluation = record.evaluation};
  program.step = {{.event = {.kind = EventKind::begin}}, {.event = {.kind = EventKind::end}}};
  for (const bool first : {true, false}) {
    for (const bool last : {true, false}) {
      if (side_by_side && !(first && last)) continue;
      program.bodies.emplace(MicroBatchKind{first, last}, Body{record.forward, record.backward});
    }
  }
  return program;
}

uint64_t hash_of(const std::vector<ShardGroup>& groups) {
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
