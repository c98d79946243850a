#include "zero/engine.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/recompute.h"
#include "core/error.h"
#include "kernels/scale.h"
#include "kernels/step_rules.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "zero/device_verdict.h"
#include "zero/edited_parameters.h"
#include "zero/engine_setup.h"
#include "zero/evaluation_scope.h"
#include "zero/gradient_norm.h"
#include "zero/own_weights.h"
#include "zero/parameter_source.h"
#include "zero/phase_clock.h"
#include "zero/recorded_passes.h"
#include "zero/resident_values.h"
#include "zero/saved_inputs.h"
#include "zero/shard_group.h"
#include "zero/step_schedule.h"
#include "zero/step_sums.h"
#include "zero/strategy.h"
#include "zero/trace_span.h"
#include "zero/update_rules.h"
#include "zero/values_at_end.h"
#include "zero/verdict_step.h"
#include "zero/vertical_passes.h"

namespace zinc::zero {

class Engine::Impl {
 public:
  Impl(nn::Model& model, const EngineConfig& config, comm::World& world, EngineOptions options)
      : config_(validated(config, model)),
        model_(model),
        world_(checked(world, config_)),
        context_(world.context()),
        clock_(config_.wall_clock_breakdown, context_),
        values_(model, options.weights, context_.random().seed()),
        is_clients_(options.optimizer != nullptr),
        optimizer_(choose_optimizer(config_, options)),
        scaler_(config_.precision.loss_scale),
        lr_schedule_(config_.schedule, config_.optimizer, run_length(options)),
        groups_(prepare_groups(model, config_, world.size())),
        schedule_(StepSchedule::record(model, groups_, config_.batches_together())),
        rules_(model, groups_, std::move(options.parameter_groups), config_.optimizer.hyper),
        agreed_(agrees(world, schedule_.hash(), rules_.hash())),
        strategy_(make_strategy(config_, strategy_inputs(options))),
        norm_(groups_, strategy_.owned, world.communicator(), context_),
        verdict_(make_device_verdict(config_, is_clients_, norm_, scaler_, world)),
        lockstep_(
            make_lockstep(options.dynamic_model && strategy_.uses_are_collective, groups_, world)),
        source_(groups_, schedule_, *strategy_.weights, *strategy_.gradients,
                !options.dynamic_model, lockstep_.get(), strategy_.late.get()),
        recorded_(
            make_recorded_passes(config_, options.dynamic_model, world, *strategy_.gradients)) {
    values_.drop_resident();
    world.communicator().set_reduce_algorithm(config_.gradient.reduce_algorithm ==
                                                      ReduceAlgorithm::native
                                                  ? comm::ReduceAlgorithm::native
                                                  : comm::ReduceAlgorithm::ordered);
    for (nn::Parameter* parameter : model.parameters()) parameter->set_source(source_);
    strategy_.measures_with(norm_);
    after_step_ = std::move(options.after_step);
  }

  ~Impl() { leave_values(model_, strategy_, !updating_); }

  Loss forward(const nn::Batch& batch) {
    require(config_.batches_together() == 1,
            "engine.forward: \"schedule\": \"vertical\" takes all micro-batches of a step "
            "together; call engine.run_passes()");
    step_trace_.begin(context_.trace());
    const TracePhase phase(context_.trace(), "forward");
    const uint64_t index = take_in(batch);
    const auto start = clock_.start();
    enter("forward", forwards_);
    context_.random().set_position(static_cast<uint64_t>(num_steps_), index);
    source_.begin(WeightStore::Phase::forward);
    const EngineParameterSource::Pass pass(source_);
    const autograd::ExpectedLossGradient expected(seed_of(batch.num_targets));
    const autograd::RecomputeInputScope recompute(saved_inputs_.store());
    Loss loss{.sum = model_.loss(batch), .num_targets = batch.num_targets};
    saved_inputs_.settle();
    pass.end();
    clock_.stop(start, &PhaseSeconds::forward);
    return loss;
  }

  void backward(const Loss& loss) {
    require(loss.sum.defined(), "engine.backward: the loss is empty; pass what forward() returned");
    require_room("backward");
    const TracePhase phase(context_.trace(), "backward");
    const auto start = clock_.start();
    enter("backward", micro_step_ + 1);
    const int64_t left = no_sync_ ? 1 : 0;  // more are to come
    if (hands_over_ && !no_sync_ && micro_step_ + 1 == config_.batch.accumulation) {
      begin_update(std::array{BatchLoss{loss.sum, loss.num_targets}});
    }
    strategy_.gradients->begin_micro_steps(backwards_, 1, num_backwards() + left);
    const EngineParameterSource::Pass pass(source_);
    autograd::backward(loss.sum, seed_of(loss.num_targets));
    pass.end();
    strategy_.gradients->end_micro_steps();
    sums_.add(loss.sum, loss.num_targets);
    ++backwards_;
    clock_.stop(start, &PhaseSeconds::backward);
    if (no_sync_) return;
    ++micro_step_;
    stepped_ = false;
  }

  void run_passes(std::span<const nn::Batch> batches) {
    require(static_cast<int64_t>(batches.size()) == config_.batches_together(),
            "engine.run_passes: ", batches.size(), " batches instead of ",
            config_.batches_together());
    if (recorded_ != nullptr && !no_sync_) {
      run_recorded(batches.front());
    } else if (config_.batches_together() == 1) {
      const Loss loss = forward(batches.front());
      hands_over_ = true;
      backward(loss);
      hands_over_ = false;
    } else {
      run_side_by_side(batches);
    }
  }

  StepResult step() {
    StepResult result = step_now();
    if (result.outcome == StepOutcome::accumulated) return result;
    step_trace_.end(context_, num_steps_);
    if (after_step_) after_step_();
    return result;
  }

  // Without the mark in the trace.
  StepResult step_now() {
    const TracePhase phase(context_.trace(), "step");
    require(!no_sync_, "engine.step: not while a NoSync lives; end it before the last backward()");
    require(!stepped_, "engine.step: there was no backward() since the last step()");
    stepped_ = true;
    if (micro_step_ < config_.batch.accumulation) return {};
    const auto start = clock_.start();
    activity_ = "reduction of the gradients";
    StepResult result = verdict_ != nullptr ? step_by_verdict() : step_by_norm();
    micro_step_ = forwards_ = backwards_ = 0;
    sums_.clear();
    clock_.stop(start, &PhaseSeconds::step);
    result.phases = clock_.take();
    return result;
  }

  Tensor gradient(std::string_view name) {
    require(!stepped_ && micro_step_ == config_.batch.accumulation,
            "engine.gradient: gradients are complete between the last backward() of a step and its "
            "step()");
    const nn::Parameter& parameter = model_.parameter(name);
    activity_ = "reduction of the gradients";
    sums_.end_gradients();
    const double divisor = divisor_of(sums_.count());
    strategy_.step->settle_gradients();
    const Tensor values = host_tensor(parameter);
    strategy_.weights->read_owned(
        source_.table().at(parameter),
        [this](const ShardGroup& group, const Segment&, Range range) {
          return strategy_.gradients->gradient(group.index(), range);
        },
        flat(values));
    kernels::scale({.x = flat(values), .factor = 1.0 / divisor, .y = flat(values)},
                   context_.compute());
    context_.compute()->synchronize();
    return values;
  }

  void edit(const std::vector<std::string>& names,
            const std::function<void(EditedParameters&)>& change, int modifier) {
    require_between_steps("edit");
    finish_update();
    edit_parameters(
        world_, names, change, modifier,
        [this](const std::string& name) { return values_of(name); },
        [this](const std::string& name, const Tensor& values) { set_parameter(name, values); });
  }

  void begin_no_sync() {
    require(!no_sync_, "NoSync: there is one already");
    require_sums_without_sync(config_);
    no_sync_ = true;
  }
  void end_no_sync() noexcept { no_sync_ = false; }

  Evaluation evaluate(const nn::Batch& batch) {
    const TracePhase phase(context_.trace(), "evaluation");
    const Tensor sum = evaluated("evaluation", [&] { return model_.loss(batch); });
    return {.loss_sum = sum.item(), .num_targets = batch.num_targets};
  }

  Tensor next_logits(const Tensor& ids) {
    return evaluated("generation", [&] { return model_.next_logits(ids); });
  }

  std::vector<Evaluation> gather(const Evaluation& part) {
    finish_update();
    return gather_evaluations(world_, part);
  }

  // See Note [Updates during backward].
  void require_no_update() const { require_weights_at_rest(updating_); }

  optim::Schedule& next_learning_rates() {
    require_no_update();
    return lr_schedule_;
  }

  void finish_update() {
    if (strategy_.late != nullptr) strategy_.late->finish();
  }

  Tensor values_of(std::string_view name, std::optional<std::string_view> state = {}) {
    require_no_update();
    finish_update();
    activity_ = "reading of weights";
    const nn::Parameter& parameter = model_.parameter(name);
    const ParameterIndex at = source_.table().at(parameter);
    const Tensor values = host_tensor(parameter);
    if (state) {
      strategy_.weights->read_state(at, state_index(*optimizer_, *state), flat(values));
    } else {
      strategy_.weights->read_master(at, flat(values));
    }
    return values;
  }

  void release_to_model() {
    require_between_steps("release_to_model");
    finish_update();
    release_values(model_, [this](const std::string& name) { return values_of(name); });
    source_.close();
  }

  void require_between_steps(const char* call) const {
    source_.require_open();
    require(backwards_ == 0 && !updating_, "engine.", call,
            ": gradients of a step under way belong to the old values; call it between steps");
  }

  void set_parameter(std::string_view name, const Tensor& values) {
    require_between_steps("set_parameter");
    finish_update();
    const nn::Parameter& parameter = model_.parameter(name);
    require(values.shape() == parameter.shape(), "parameter '", name, "' has shape ",
            parameter.shape(), ", the values have ", values.shape());
    strategy_.weights->write_master(source_.table().at(parameter), flat(values.clone()));
  }

  void read_own_weights(const TakeWeights& take) {
    require_no_update();
    if (strategy_.late != nullptr) strategy_.late->finish_own();
    activity_ = "reading of weights";
    zero::read_own_weights(groups_, *strategy_.weights, world_.communicator(), context_, take);
  }

  std::string moment() const {
    const std::string_view activity = activity_;
    if (activity == "forward" || activity == "backward") {
      return concat(activity, " of micro-batch ", entered_, ", at ", source_.last_used());
    }
    return std::string(activity);
  }

  EngineConfig config_;
  nn::Model& model_;
  comm::World& world_;
  Context& context_;
  PhaseClock clock_;
  ResidentValues values_;
  const bool is_clients_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LossScaler scaler_;
  optim::Schedule lr_schedule_;
  std::vector<ShardGroup> groups_;
  StepSchedule schedule_;
  UpdateRules rules_;
  bool agreed_;
  Strategy strategy_;
  GradientNorm norm_;
  std::unique_ptr<DeviceVerdict> verdict_;  // null: the host decides
  std::unique_ptr<Lockstep> lockstep_;      // null: the schedule keeps the ranks together
  EngineParameterSource source_;
  std::unique_ptr<RecordedPasses> recorded_;  // null without "cuda_graph"
  SavedInputs saved_inputs_{context_, config_, model_, strategy_.swap_clock.get()};

  StepSums sums_{config_, strategy_, verdict_.get(), world_};
  int64_t num_steps_ = 0;
  int64_t num_applied_ = 0;
  int64_t consecutive_skips_ = 0;
  int64_t micro_step_ = 0;
  int64_t forwards_ = 0;   // since the last step: numbers batches that carry no index
  int64_t backwards_ = 0;  // since the last step, uncounted ones of NoSync too
  bool no_sync_ = false;
  bool stepped_ = true;
  const char* activity_ = "construction";
  int64_t entered_ = 0;  // micro-batch of the activity, from 1
  StepTrace step_trace_;
  std::function<void()> after_step_;
  bool hands_over_ = false;  // run_passes(): the update may begin during backward
  bool updating_ = false;    // since run_passes()
  Tensor factor_;            // of the last update: [1] f32

 private:
  // Checks a batch that goes forward, and gives the key of its random numbers.
  uint64_t take_in(const nn::Batch& batch) {
    require_shape(batch, config_);
    const int64_t next = num_steps_ * config_.batch.accumulation + forwards_++;
    return static_cast<uint64_t>(batch.global_micro_batch >= 0
                                     ? batch.global_micro_batch
                                     : next * world_.size() + world_.rank());
  }

  template <class Compute>
  Tensor evaluated(const char* activity, const Compute& compute) {
    require_no_update();
    const EvaluationScope evaluation(model_);
    const autograd::NoGrad no_grad;
    activity_ = activity;
    source_.begin(WeightStore::Phase::evaluation);
    const EngineParameterSource::Pass pass(source_);
    Tensor result = compute();
    pass.end();
    strategy_.weights->end_passes();
    return result;
  }

  void enter(const char* activity, int64_t micro_batch) {
    activity_ = activity;
    entered_ = micro_batch;
  }

  void require_room(const char* call) const {
    require(micro_step_ < config_.batch.accumulation, "engine.", call, ": all ",
            config_.batch.accumulation, " micro-batches of this step are done; call step() first");
  }
  // Of this step, as far as is known.
  int64_t num_backwards() const { return backwards_ + config_.batch.accumulation - micro_step_; }

  // See Note [Recorded passes].
  void run_recorded(const nn::Batch& batch) {
    require_room("run_passes");
    step_trace_.begin(context_.trace());
    const TracePhase phase(context_.trace(), "forward and backward");
    const uint64_t index = take_in(batch);
    enter("recorded passes", forwards_);
    context_.random().set_position(static_cast<uint64_t>(num_steps_), index);
    const RecordedPasses::Kind kind{.first = backwards_ == 0,
                                    .last = backwards_ + 1 == num_backwards()};
    strategy_.gradients->begin_micro_steps(backwards_, 1, num_backwards());
    const auto passes = [&](const nn::Batch& inputs, const autograd::RecordedSeed& seed) {
      source_.begin(WeightStore::Phase::forward);
      const EngineParameterSource::Pass pass(source_);
      const autograd::ExpectedLossGradient expected({.recorded = &seed});
      const Tensor loss = model_.loss(inputs);
      autograd::backward(loss, seed.gradient());
      pass.end();
      strategy_.weights->end_passes();
      strategy_.gradients->complete_micro_steps();
      return loss;
    };
    Tensor sum;
    try {
      sum = recorded_->run(batch, kind, seed_of(batch.num_targets), passes);
    } catch (...) {
      // What was to be gathered by a recording that failed has never been.
      strategy_.weights->end_passes();
      throw;
    }
    strategy_.gradients->end_micro_steps();
    sums_.add(sum, batch.num_targets);
    ++backwards_;
    ++micro_step_;
    stepped_ = false;
  }

  void run_side_by_side(std::span<const nn::Batch> batches) {
    require(stepped_ && backwards_ == 0,
            "engine.run_passes: all micro-batches of this step are done; call step() first");
    step_trace_.begin(context_.trace());
    std::vector<SideBySide> micro_batches;
    for (const nn::Batch& batch : batches) {
      micro_batches.push_back({.batch = &batch,
                               .global_micro_batch = take_in(batch),
                               .seed = seed_of(batch.num_targets)});
    }
    VerticalPasses passes(model_, static_cast<uint64_t>(num_steps_), micro_batches);
    source_.begin(WeightStore::Phase::forward);
    {
      const TracePhase phase(context_.trace(), "forward");
      const auto start = clock_.start();
      const EngineParameterSource::Pass pass(source_);
      const autograd::RecomputeInputScope recompute(saved_inputs_.store());
      passes.forward([this](int64_t i) { enter("forward", i + 1); });
      saved_inputs_.settle();
      pass.end();
      clock_.stop(start, &PhaseSeconds::forward);
    }
    const TracePhase phase(context_.trace(), "backward");
    const auto start = clock_.start();
    const auto count = static_cast<int64_t>(batches.size());
    const std::vector<BatchLoss> losses = passes.losses();
    begin_update(losses);
    strategy_.gradients->begin_micro_steps(0, count, count);
    const EngineParameterSource::Pass pass(source_);
    passes.backward([this](int64_t i) {
      enter("backward", i + 1);
      strategy_.gradients->enter(i);
    });
    pass.end();
    strategy_.gradients->end_micro_steps();
    for (const BatchLoss& loss : losses) sums_.add(loss.sum, loss.num_targets);
    micro_step_ = backwards_ = count;
    stepped_ = false;
    clock_.stop(start, &PhaseSeconds::backward);
  }

  StrategyInputs strategy_inputs(const EngineOptions& options) {
    return {.groups = groups_,
            .schedule = schedule_,
            .communicator = world_.communicator(),
            .context = context_,
            .weights = values_,
            .clock = clock_,
            .num_states = optimizer_->num_states(),
            .dynamic_model = options.dynamic_model,
            .wire_divisor = wire_divisor(config_.gradient, world_.size())};
  }

  double seed_of(int64_t num_targets) const {
    return sums_.totals().seed(scaler_.scale(), num_targets);
  }

  StepResult step_by_norm() {
    sums_.end_gradients();
    const double divisor = divisor_of(sums_.count());
    const NormResult norm = strategy_.measure(norm_);
    const double summed_norm = std::sqrt(norm.sum_of_squares);
    StepResult result = begin_result(sums_.loss(), summed_norm / divisor);
    const bool overflow = config_.precision.check_overflow && norm.nonfinite.has_value();
    if (overflow) skip(norm, result);
    if (!overflow) require_finite(sums_.loss(), result.step, config_.precision);
    update(overflow, summed_norm, divisor);
    if (!overflow) count_applied(result);
    scaler_.update(overflow, result.overflow);
    return result;
  }

  StepResult begin_result(const StepLoss& loss, double gradient_norm) {
    activity_ = "optimizer step";
    return {.step = ++num_steps_,
            .loss = loss.mean,
            .gradient_norm = gradient_norm,
            .learning_rate = lr_schedule_.lr(),
            .loss_scale = scaler_.scale(),
            .num_targets = loss.num_targets};
  }

  // See Note [Verdict on the device].
  StepResult step_by_verdict() {
    rules_.follow(lr_schedule_);
    VerdictStep step{*verdict_, strategy_, rules_, *optimizer_, recorded_.get()};
    const auto [verdict, loss] = step.run(sums_, num_applied_ + 1);
    StepSums::require_targets(verdict.count);
    StepResult result =
        begin_result(loss, std::sqrt(verdict.sum_of_squares) / divisor_of(verdict.count));
    if (verdict.withheld != 0) require_finite(loss, result.step, config_.precision);
    if (verdict.skip != 0) {
      skip(norm_.result(verdict.sum_of_squares, verdict.first_nonfinite), result);
    } else {
      count_applied(result);
    }
    scaler_.follow(verdict.scale, verdict.at_minimum != 0, result.overflow);
    return result;
  }

  void skip(const NormResult& norm, StepResult& result) {
    result.outcome = StepOutcome::skipped_overflow;
    result.overflow = norm_.culprit(norm);
    require_progress(++consecutive_skips_, config_.precision.max_consecutive_skips,
                     result.overflow);
  }

  // See Note [Updates during backward]. `coming`: this rank's last micro-batches.
  void begin_update(std::span<const BatchLoss> coming) {
    if (!strategy_.updates_during_backward || sums_.must_wait(config_.precision, coming)) return;
    const double count = sums_.totals().count_with(world_, coming);
    StepSums::require_targets(count);
    set_update(factor_of(0.0, divisor_of(count)));
    updating_ = true;
    strategy_.step->begin(step_arguments());
  }

  double divisor_of(double count) const {
    return scaler_.scale() * count / gradient_divisor(config_, world_.size());
  }

  StepArguments step_arguments() const {
    return {.optimizer = *optimizer_,
            .rules = rules_,
            .factor = factor_.view(),
            .step = num_applied_ + 1};
  }

  void set_update(double factor) {
    // Kept, so that every step has the same peak.
    if (!factor_.defined()) factor_ = Tensor::empty({1}, DType::f32, Label::workspace);
    factor_.fill(factor);
    rules_.follow(lr_schedule_);
  }

  // A skipped update takes the memory of one that is applied, so that both have the plan's peak.
  void update(bool skipped, double summed_norm, double divisor) {
    if (!std::exchange(updating_, false)) {
      finish_update();  // which reads the factor and the rules
      set_update(skipped ? 0.0 : factor_of(summed_norm, divisor));
    }
    if (strategy_.late != nullptr) return strategy_.late->begin(step_arguments(), skipped);
    if (!skipped) strategy_.step->run(step_arguments());
    strategy_.weights->publish();
    strategy_.gradients->discard();
  }

  void count_applied(StepResult& result) {
    lr_schedule_.advance();
    ++num_applied_;
    consecutive_skips_ = 0;
    result.outcome = StepOutcome::applied;
  }

  double factor_of(double summed_norm, double divisor) const {
    return kernels::update_factor(summed_norm, divisor, config_.gradient.clipping);
  }

  static View flat(const Tensor& values) { return values.view().reshape(Shape{values.numel()}); }
};

Engine::Engine(nn::Model& model, const EngineConfig& config, comm::World& world,
               EngineOptions options)
    : impl_(std::make_unique<Impl>(model, config, world, std::move(options))) {}
Engine::~Engine() = default;

Loss Engine::forward(const nn::Batch& batch) { return impl_->forward(batch); }
void Engine::backward(const Loss& loss) { impl_->backward(loss); }
void Engine::run_passes(std::span<const nn::Batch> batches) { impl_->run_passes(batches); }
StepResult Engine::step() { return impl_->step(); }
Evaluation Engine::evaluate(const nn::Batch& batch) { return impl_->evaluate(batch); }
std::vector<Evaluation> Engine::gather(const Evaluation& part) { return impl_->gather(part); }
Tensor Engine::next_logits(const Tensor& ids) { return impl_->next_logits(ids); }
const EngineConfig& Engine::config() const { return impl_->config_; }
nn::Model& Engine::model() { return impl_->model_; }
comm::World& Engine::world() { return impl_->world_; }
int64_t Engine::num_steps() const { return impl_->num_steps_; }
int64_t Engine::num_applied() const { return impl_->num_applied_; }
int64_t Engine::num_skipped() const { return impl_->num_steps_ - impl_->num_applied_; }
int64_t Engine::micro_step() const { return impl_->micro_step_; }
double Engine::loss_scale() const { return impl_->scaler_.scale(); }
double Engine::learning_rate() const { return impl_->lr_schedule_.lr(); }
void Engine::set_learning_rate(double value) { impl_->next_learning_rates().set_lr(value); }
void Engine::clear_learning_rate() { impl_->next_learning_rates().clear_lr(); }
Tensor Engine::parameter(std::string_view name) { return impl_->values_of(name); }
Tensor Engine::optimizer_state(std::string_view name, std::string_view state) {
  return impl_->values_of(name, state);
}
void Engine::set_parameter(std::string_view name, const Tensor& values) {
  impl_->set_parameter(name, values);
}
void Engine::finish_update() { impl_->finish_update(); }
void Engine::release_to_model() { impl_->release_to_model(); }
void Engine::read_own_weights(const TakeWeights& take) { impl_->read_own_weights(take); }
SwapTraffic Engine::swap_traffic() const {
  return impl_->strategy_.swap_traffic() + impl_->saved_inputs_.traffic();
}
std::string Engine::moment() const { return impl_->moment(); }
Tensor Engine::gradient(std::string_view name) { return impl_->gradient(name); }
void Engine::edit(const std::vector<std::string>& names,
                  const std::function<void(EditedParameters&)>& change, int modifier) {
  impl_->edit(names, change, modifier);
}
Engine::NoSync::NoSync(Engine& engine) : engine_(engine) { engine.impl_->begin_no_sync(); }
Engine::NoSync::~NoSync() { engine_.impl_->end_no_sync(); }
GraphUse Engine::graph_use() const { return zero::graph_use(impl_->recorded_.get()); }
uint64_t Engine::schedule_hash() const { return impl_->schedule_.hash(); }

}  // namespace zinc::zero
