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
#include "zero/run/vertical_passes.h"

namespace zinc::zero {
namespace {

constexpr int16_t kRecordingDevice = 1 << 14;

// Serves meta views and writes down what is asked of it.
class RecordingSource : public autograd::ParameterSource {
 public:
  RecordingSource(const ParameterTable& table, Context& context, const WorkLog& log)
      : table_(table), context_(context), log_(log) {}

  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    last_used_ = &parameter;
    add(EventKind::use, parameter);
    return {*this, parameter, view_of(parameter)};
  }
  autograd::GradientTarget gradient(autograd::Parameter& parameter) override {
    return {.view = view_of(parameter), .accumulate = false};
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
  View view_of(const autograd::Parameter& parameter) {
    return {&unreadable_, parameter.dtype(), parameter.shape(), context_.device()};
  }

  const ParameterTable& table_;
  Context& context_;
  const WorkLog& log_;
  Phase places_;
  const autograd::Parameter* last_used_ = nullptr;
  int64_t micro_batch_ = 0;
  int64_t begins_with_ = 0;  // bytes of activations
  size_t logged_ = 0;        // entries that were counted
  std::byte unreadable_{};  // gives the views an address; nothing reads through it on a meta device
};

// Puts every parameter under one source and back under its own when the scope ends.
class SourceScope {
 public:
  SourceScope(nn::Model& model, autograd::ParameterSource& source) {
    for (nn::Parameter* parameter : model.parameters()) {
      previous_.emplace_back(parameter, &parameter->source());
      parameter->set_source(source);
    }
  }
  ~SourceScope() {
    for (auto& [parameter, source] : previous_) parameter->set_source(*source);
  }
  SourceScope(const SourceScope&) = delete;
  SourceScope& operator=(const SourceScope&) = delete;

 private:
  std::vector<std::pair<nn::Parameter*, autograd::ParameterSource*>> previous_;
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

}  // namespace

Record record_step(nn::Model& model, const std::vector<ShardGroup>& groups,
                   const ExampleBatch& example, int64_t together) {
  // A device of its own: what a model keeps for a device is not kept from the record for the run.
  Device device = Context::current().device();
  device.meta = true;
  device.index = kRecordingDevice;
  const bool remakes = autograd::Mode::current().remakes;
  WorkLog log;
  Context context({.device = device,
                   .seed = Context::current().random().seed(),
                   .num_threads = Context::current().num_threads(),
                   .execution = ContextOptions::Execution::inline_all,
                   .work_log = &log});
  const ContextScope scope(context);
  const autograd::RemakeScope as_outside(remakes);
  const ParameterTable table(groups);
  RecordingSource recorder(table, context, log);
  const SourceScope sources(model, recorder);

  nn::Batch batch = example();
  batch.global_micro_batch = 0;
  Record record;
  try {
    const Tensor loss = model.loss(batch);
    record.evaluation = recorder.take();
    record.forward = record.evaluation;
    if (together == 1) autograd::backward(loss);
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
