// zero/parameter_source.h: what the engine installs under a model's parameters.
//
// Joins the weight store, the gradient store and the recorded schedule: every use of a parameter is
// checked against the schedule and passed on.
#pragma once

#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "core/error.h"
#include "zero/gradient_store.h"
#include "zero/late_update.h"
#include "zero/lockstep.h"
#include "zero/shard_group.h"
#include "zero/step_schedule.h"
#include "zero/weight_store.h"

namespace zinc::zero {

class EngineParameterSource : public autograd::ParameterSource {
 public:
  // All arguments must outlive this. `check`: compare every use with the schedule. `lockstep`: with
  // the other ranks; may be null, as `late` may.
  EngineParameterSource(const std::vector<ShardGroup>& groups, const StepSchedule& schedule,
                        WeightStore& weights, GradientStore& gradients, bool check,
                        Lockstep* lockstep, LateUpdate* late)
      : table_(groups),
        weights_(weights),
        gradients_(gradients),
        check_(check),
        lockstep_(lockstep),
        late_(late),
        forward_(groups, "forward", schedule.forward()),
        backward_(groups, "backward", schedule.backward()),
        evaluation_(groups, "forward", schedule.evaluation()),
        cursor_(&forward_) {}

  // A pass that the engine runs. Parameters can be used while one lives, and nowhere else.
  class Pass {
   public:
    explicit Pass(EngineParameterSource& source) : source_(source) { ++source_.passes_; }
    ~Pass() { --source_.passes_; }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    void end() const {
      if (source_.late_ != nullptr) source_.late_->use_all();
      if (source_.lockstep_ != nullptr) source_.lockstep_->end();
    }

   private:
    EngineParameterSource& source_;
  };

  // The model has its values back: see Engine::release_to_model().
  void close() { open_ = false; }
  void require_open() const {
    require(open_,
            "engine: its weights are the model's own since release_to_model(); make a new engine "
            "to train on");
  }

  // A forward pass begins.
  void begin(WeightStore::Phase phase) {
    require_open();
    cursor_ = phase == WeightStore::Phase::evaluation ? &evaluation_ : &forward_;
    cursor_->restart();
    if (late_ != nullptr && phase == WeightStore::Phase::evaluation) late_->finish();
    weights_.begin(phase);
  }
  const ParameterTable& table() const { return table_; }
  // The parameter that the model touched last; empty before the first.
  std::string_view last_used() const {
    return last_used_ ? last_used_->name() : std::string_view();
  }

  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    require_pass(parameter);
    const ParameterIndex index = table_.at(parameter);
    last_used_ = &parameter;
    if (check_) cursor_->advance(ScheduleAction::acquire, index);
    if (lockstep_ != nullptr) lockstep_->use(index.group);
    if (late_ != nullptr) late_->use(index.group);
    return {*this, parameter, weights_.pin(index)};
  }
  autograd::GradientTarget gradient(autograd::Parameter& parameter) override {
    require_pass(parameter);
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
  void require_pass(const autograd::Parameter& parameter) const {
    require(passes_ > 0, "parameter '", parameter.name(),
            "' belongs to an engine: call engine.forward(), backward(), evaluate() or "
            "next_logits(), not the module itself");
  }

  ParameterTable table_;
  int passes_ = 0;
  bool open_ = true;
  const autograd::Parameter* last_used_ = nullptr;
  WeightStore& weights_;
  GradientStore& gradients_;
  bool check_;
  Lockstep* lockstep_;
  LateUpdate* late_;
  ScheduleCursor forward_;
  ScheduleCursor backward_;
  ScheduleCursor evaluation_;
  ScheduleCursor* cursor_;
};

}  // namespace zinc::zero
