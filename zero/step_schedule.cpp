#include "zero/step_schedule.h"

#include <algorithm>
#include <array>

#include "autograd/backward.h"
#include "core/context.h"
#include "core/error.h"
#include "core/philox.h"
#include "zero/vertical_passes.h"

namespace zinc::zero {
namespace {

constexpr int64_t kRecordedSequence = 8;

std::string_view name_of(ScheduleAction action) {
  return action == ScheduleAction::acquire ? "use of" : "finished gradient of";
}

// Serves meta views and writes down what is asked of it.
class RecordingSource : public autograd::ParameterSource {
 public:
  RecordingSource(const ParameterTable& table, Device device) : table_(table), device_(device) {}

  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    entries.push_back({ScheduleAction::acquire, table_.at(parameter)});
    return {*this, parameter, view_of(parameter)};
  }
  autograd::GradientTarget gradient(autograd::Parameter& parameter) override {
    return {.view = view_of(parameter), .accumulate = false};
  }
  void gradient_done(autograd::Parameter& parameter) override {
    entries.push_back({ScheduleAction::gradient_done, table_.at(parameter)});
  }

  std::vector<ScheduleEntry> entries;

 protected:
  void release(autograd::Parameter&) noexcept override {}

 private:
  View view_of(const autograd::Parameter& parameter) {
    return {&unreadable_, parameter.dtype(), parameter.shape(), device_};
  }

  const ParameterTable& table_;
  Device device_;
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

uint64_t hash_layout(const std::vector<ShardGroup>& groups) {
  uint64_t hash = hash_text("zinc schedule 1");
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

std::vector<int> order_of_completion(const std::vector<ShardGroup>& groups,
                                     const std::vector<ScheduleEntry>& backward) {
  std::vector<int> missing;
  for (const ShardGroup& group : groups) missing.push_back(group.num_trained_parameters());
  std::vector<int> order;
  for (const ScheduleEntry& entry : backward) {
    if (entry.action != ScheduleAction::gradient_done) continue;
    if (--missing[static_cast<size_t>(entry.parameter.group)] == 0) {
      order.push_back(entry.parameter.group);
    }
  }
  for (int group = static_cast<int>(groups.size()) - 1; group >= 0; --group) {
    if (missing[static_cast<size_t>(group)] > 0) order.push_back(group);
  }
  return order;
}

}  // namespace

ParameterTable::ParameterTable(const std::vector<ShardGroup>& groups) {
  for (const ShardGroup& group : groups) {
    int position = 0;
    for (const Placement& placement : group.placements()) {
      places_.emplace(placement.parameter, ParameterIndex{group.index(), position++});
    }
  }
}

ParameterIndex ParameterTable::at(const autograd::Parameter& parameter) const {
  const auto found = places_.find(&parameter);
  require(found != places_.end(), "parameter '", parameter.name(),
          "' was not part of the model when the engine was made");
  return found->second;
}

StepSchedule StepSchedule::record(nn::Model& model, const std::vector<ShardGroup>& groups,
                                  int64_t together) {
  Device device = Context::current().device();
  device.meta = true;
  Context context({.device = device,
                   .seed = Context::current().random().seed(),
                   .execution = ContextOptions::Execution::inline_all});
  const ContextScope scope(context);
  const ParameterTable table(groups);
  RecordingSource recorder(table, device);
  const SourceScope sources(model, recorder);

  const int64_t sequence = std::min(kRecordedSequence, model.max_sequence());
  nn::Batch batch{.input_ids = Tensor::zeros({1, sequence}, DType::i32),
                  .labels = Tensor::zeros({1, sequence}, DType::i32),
                  .num_targets = sequence,
                  .num_tokens = sequence,
                  .global_micro_batch = 0};
  StepSchedule schedule;
  {
    const Tensor loss = model.loss(batch);
    schedule.evaluation_ = std::exchange(recorder.entries, {});
    schedule.forward_ = schedule.evaluation_;
    if (together == 1) autograd::backward(loss);
    schedule.backward_ = std::exchange(recorder.entries, {});
  }
  if (together > 1) {
    VerticalPasses passes(
        model, 0, std::vector<SideBySide>(static_cast<size_t>(together), {.batch = &batch}));
    passes.forward([](int64_t) {});
    schedule.forward_ = std::exchange(recorder.entries, {});
    passes.backward([](int64_t) {});
    schedule.backward_ = std::exchange(recorder.entries, {});
  }
  schedule.reduce_order_ = order_of_completion(groups, schedule.backward_);
  schedule.hash_ = hash_layout(groups);
  for (const auto* phase : {&schedule.forward_, &schedule.backward_}) {
    for (const ScheduleEntry& entry : *phase) {
      schedule.hash_ = combine_bits(schedule.hash_, static_cast<uint64_t>(entry.action));
      schedule.hash_ = combine_bits(schedule.hash_, static_cast<uint64_t>(entry.parameter.group));
      schedule.hash_ =
          combine_bits(schedule.hash_, static_cast<uint64_t>(entry.parameter.position));
    }
  }
  return schedule;
}

std::vector<int> StepSchedule::use_order(int num_groups) const {
  std::vector<int> order;
  std::vector<bool> seen(static_cast<size_t>(num_groups), false);
  const auto add = [&](int group) {
    if (!seen[static_cast<size_t>(group)]) order.push_back(group);
    seen[static_cast<size_t>(group)] = true;
  };
  for (const ScheduleEntry& entry : forward_) {
    if (entry.action == ScheduleAction::acquire) add(entry.parameter.group);
  }
  for (int group = 0; group < num_groups; ++group) add(group);
  return order;
}

void ScheduleCursor::advance(ScheduleAction action, ParameterIndex parameter) {
  const ScheduleEntry actual{action, parameter};
  const auto describe = [this](const ScheduleEntry& entry) {
    const ShardGroup& group = (*groups_)[static_cast<size_t>(entry.parameter.group)];
    const Placement& placement = group.placements()[static_cast<size_t>(entry.parameter.position)];
    return concat(name_of(entry.action), " ", placement.parameter->name());
  };
  require(next_ < entries_->size(), "the model left its recorded ", phase_,
          " schedule: ", describe(actual), " after the recorded end (", entries_->size(),
          " entries)");
  require((*entries_)[next_] == actual, "the model left its recorded ", phase_,
          " schedule at entry ", next_, ": ", describe(actual), " instead of ",
          describe((*entries_)[next_]),
          "; a model whose control flow changes from step to step needs "
          "EngineOptions::dynamic_model: zinc::initialize(model, config, world, {.dynamic_model = "
          "true})");
  ++next_;
}

}  // namespace zinc::zero
