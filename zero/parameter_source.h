// zero/parameter_source.h: what the engine installs under a model's parameters.
//
// Joins the weight store, the gradient store and the recorded schedule: every use of a parameter is
// checked against the schedule and passed on.
#pragma once

#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "zero/gradient_store.h"
#include "zero/shard_group.h"
#include "zero/step_schedule.h"
#include "zero/weight_store.h"

namespace zinc::zero {

class EngineParameterSource : public autograd::ParameterSource {
 public:
  // All arguments must outlive this. `check`: compare every use with the schedule.
  EngineParameterSource(const std::vector<ShardGroup>& groups, const StepSchedule& schedule,
                        WeightStore& weights, GradientStore& gradients, bool check)
      : table_(groups),
        weights_(weights),
        gradients_(gradients),
        check_(check),
        forward_(groups, "forward", schedule.forward()),
        backward_(groups, "backward", schedule.backward()),
        cursor_(&forward_) {}

  // A forward pass begins.
  void begin(WeightStore::Phase phase) {
    forward_.restart();
    cursor_ = &forward_;
    weights_.begin(phase);
  }
  const ParameterTable& table() const { return table_; }
  // The parameter that the model touched last; empty before the first.
  std::string_view last_used() const {
    return last_used_ ? last_used_->name() : std::string_view();
  }

  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    const ParameterIndex index = table_.at(parameter);
    last_used_ = &parameter;
    if (check_) cursor_->advance(ScheduleAction::acquire, index);
    return {*this, parameter, weights_.pin(index)};
  }
  autograd::GradientTarget gradient(autograd::Parameter& parameter) override {
    return gradients_.target(table_.at(parameter));
  }
  void gradient_done(autograd::Parameter& parameter) override {
    const ParameterIndex index = table_.at(parameter);
    last_used_ = &parameter;
    if (check_) cursor_->advance(ScheduleAction::gradient_done, index);
    gradients_.gradient_done(index);
  }
  void backward_begin() override {
    backward_.restart();
    cursor_ = &backward_;
    weights_.begin(WeightStore::Phase::backward);
  }

 protected:
  void release(autograd::Parameter& parameter) noexcept override {
    weights_.unpin(table_.at(parameter));
  }

 private:
  ParameterTable table_;
  const autograd::Parameter* last_used_ = nullptr;
  WeightStore& weights_;
  GradientStore& gradients_;
  bool check_;
  ScheduleCursor forward_;
  ScheduleCursor backward_;
  ScheduleCursor* cursor_;
};

}  // namespace zinc::zero
