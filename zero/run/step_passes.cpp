#include "zero/run/step_passes.h"

#include "autograd/backward.h"
#include "autograd/loss_scope.h"
#include "autograd/recompute.h"
#include "autograd/remade.h"
#include "core/error.h"
#include "zero/group/gradient_policy.h"

namespace zinc::zero {
namespace {

// The modes of a training step's forward pass, in whichever way it runs. `inputs`: the store for
// inputs of recomputed blocks; null: the inputs stay where they are.
class TrainingForward {
 public:
  TrainingForward(const EngineConfig& config, autograd::SavedTensorStore* inputs)
      : loss_({.label_smoothing = config.label_smoothing, .narrow_logits = config.narrow_logits}),
        inputs_(inputs),
        remakes_(config.recompute.selective) {}

 private:
  autograd::LossScope loss_;
  autograd::RecomputeInputScope inputs_;
  autograd::RemakeScope remakes_;
};

// InvalidArgument where a batch that goes forward is not of the configuration's shape.
void require_shape(const nn::Batch& batch, const EngineConfig& config) {
  require(!batch.tensors.empty(), "engine.forward: the batch has no tensors");
  require(batch.rows() == config.batch.micro_batch, "engine.forward: the batch has ", batch.rows(),
          " sequences, but train_micro_batch_size_per_gpu is ", config.batch.micro_batch,
          "; pad it, or change the configuration");
  const Tensor labels = batch.find("labels");
  const int64_t targets = labels.defined() ? labels.numel() : batch.num_targets;
  require(
      config.loss_divisor() == 1.0 || targets <= config.batch.micro_batch * config.batch.sequence,
      "engine.forward: the batch has ", targets / config.batch.micro_batch,
      " positions per sequence, but the scale of an fp16 loss is measured by ",
      config.batch.sequence,
      "; set EngineConfig::batch.sequence (default: the model's max_sequence()) to the longest");
}

// InvalidArgument where backward() cannot add to sums that no other rank sees yet.
void require_sums_without_sync(const EngineConfig& config) {
  require(config.zero.stage <= 1, "NoSync: gradients are sharded on stage ", config.zero.stage,
          ", so every backward() has to reduce; use stage 0 or 1");
  const GradientPolicy policy = GradientPolicy::choose(config);
  require(policy.schedule == ReduceSchedule::boundary,
          "NoSync: needs \"reduce_schedule\": \"boundary\"");
  require(policy.several || !is_16bit_float(policy.kept),
          "NoSync: with one micro-batch per step gradients are kept in ", policy.kept,
          "; set \"grad_accum_dtype\": \"fp32\" to add them up");
}

}  // namespace

StepPasses::StepPasses(const Parts& parts)
    : config_(parts.config),
      model_(parts.model),
      whole_(parts.world),
      cut_(parts.cut),
      program_(parts.program),
      stores_(parts.stores),
      step_(parts.step),
      runner_(parts.runner),
      passes_(parts.passes),
      recorded_(parts.recorded),
      clock_(parts.clock),
      context_(parts.world.context()),
      saved_inputs_(context_, config_, parts.inputs, whole_.tensor(), stores_.swap_clock.get()) {}

uint64_t StepPasses::take_in(const nn::Batch& batch) {
  require_shape(batch, config_);
  const int64_t next = step_.steps() * config_.batch.accumulation + forwards_++;
  const comm::MeshPlace data = whole_.data();
  const int64_t index =
      batch.global_micro_batch >= 0 ? batch.global_micro_batch : next * data.size() + data.rank();
  const comm::Mesh& mesh = whole_.mesh();
  return static_cast<uint64_t>(index * mesh.sequence + mesh.sequence_of(whole_.rank()));
}

std::vector<parallel::SideBySide> StepPasses::take_in(std::span<const nn::Batch> batches) {
  std::vector<parallel::SideBySide> micro_batches;
  for (const nn::Batch& batch : batches) {
    micro_batches.push_back({.batch = &batch,
                             .global_micro_batch = take_in(batch),
                             .seed = step_.seed(batch.num_targets)});
  }
  return micro_batches;
}

void StepPasses::require_room(const char* call) const {
  require(micro_steps_ < config_.batch.accumulation, "engine.", call, ": all ",
          config_.batch.accumulation, " micro-batches of this step are done; call step() first");
}

void StepPasses::require_none_done() const {
  require(stepped_ && backwards_ == 0,
          "engine.run_passes: all micro-batches of this step are done; call step() first");
}

template <class Work>
void StepPasses::forward_pass(const MicroBatchKind& kind, const Work& work) {
  const auto start = clock_.start();
  runner_.begin_forward(kind);
  const Runner::Pass pass(runner_);
  const TrainingForward forward(config_, saved_inputs_.store());
  passes_.named(work);
  saved_inputs_.settle();
  pass.end();
  clock_.stop(start, &PhaseSeconds::forward);
}

template <class Work>
void StepPasses::backward_pass(const MicroBatchKind& kind, const Work& work, bool of_weights) {
  const auto start = clock_.start();
  runner_.begin_backward(kind, of_weights);
  const Runner::Pass pass(runner_);
  work();
  pass.end();
  runner_.end_backward(kind, of_weights);
  clock_.stop(start, &PhaseSeconds::backward);
}

BatchLoss StepPasses::forward(const nn::Batch& batch) {
  require(cut_ == nullptr,
          "engine.forward: in a pipeline all micro-batches of a step pass together; call "
          "engine.run_passes(), or zinc::train_batch(engine, loader)");
  require(config_.batches_together() == 1,
          "engine.forward: \"schedule\": \"vertical\" takes all micro-batches of a step "
          "together; call engine.run_passes()");
  step_trace_.begin(context_.trace());
  const TracePhase phase(context_.trace(), "forward");
  const uint64_t index = take_in(batch);
  passes_.enter(Activity::forward, forwards_);
  context_.random().set_position(static_cast<uint64_t>(step_.steps()), index);
  BatchLoss loss{.num_targets = batch.num_targets};
  forward_pass({.first = forwards_ == 1, .last = forwards_ == config_.batch.accumulation}, [&] {
    const autograd::ExpectedLossGradient expected(step_.seed(batch.num_targets));
    loss.sum = model_.loss(batch);
  });
  return loss;
}

void StepPasses::backward(const BatchLoss& loss) {
  require(loss.sum.defined(), "engine.backward: the loss is empty; pass what forward() returned");
  require_room("backward");
  const TracePhase phase(context_.trace(), "backward");
  passes_.enter(Activity::backward, micro_steps_ + 1);
  const int64_t left = no_sync_ ? 1 : 0;  // more are to come
  if (hands_over_ && !no_sync_ && micro_steps_ + 1 == config_.batch.accumulation) {
    step_.expect({loss});
  }
  const MicroBatchKind kind{.first = backwards_ == 0,
                            .last = backwards_ + 1 == num_backwards() + left};
  stores_.gradients->begin_micro_steps(backwards_, 1, num_backwards() + left);
  backward_pass(kind, [&] { autograd::backward(loss.sum, step_.seed(loss.num_targets)); });
  step_.add(loss.sum, loss.num_targets);
  ++backwards_;
  if (no_sync_) return;
  ++micro_steps_;
  stepped_ = false;
}

void StepPasses::run(std::span<const nn::Batch> batches) {
  require(static_cast<int64_t>(batches.size()) == config_.batches_per_call(),
          "engine.run_passes: ", batches.size(), " batches instead of ",
          config_.batches_per_call());
  if (cut_ != nullptr) {
    run_pipeline(batches);
  } else if (recorded_ != nullptr && !no_sync_) {
    run_recorded(batches.front());
  } else if (config_.batches_together() == 1) {
    const BatchLoss loss = forward(batches.front());
    hands_over_ = true;
    backward(loss);
    hands_over_ = false;
  } else {
    run_side_by_side(batches);
  }
}

StepResult StepPasses::step() {
  StepResult result = step_now();
  if (result.outcome != StepOutcome::accumulated) step_trace_.end(context_, step_.steps());
  return result;
}

// Makes the step, without its mark in the trace.
StepResult StepPasses::step_now() {
  const TracePhase phase(context_.trace(), "step");
  require(!no_sync_, "engine.step: not while a NoSync lives; end it before the last backward()");
  require(!stepped_, "engine.step: there was no backward() since the last step()");
  stepped_ = true;
  if (micro_steps_ < config_.batch.accumulation) return {};
  const auto start = clock_.start();
  passes_.enter(Activity::step);
  StepResult result = runner_.run_step();
  micro_steps_ = forwards_ = backwards_ = 0;
  clock_.stop(start, &PhaseSeconds::step);
  result.phases = clock_.take();
  return result;
}

void StepPasses::begin_no_sync() {
  require(!no_sync_, "NoSync: there is one already");
  require(cut_ == nullptr, "NoSync: in a pipeline all micro-batches of a step pass together");
  require_sums_without_sync(config_);
  no_sync_ = true;
}

void StepPasses::run_recorded(const nn::Batch& batch) {
  require_room("run_passes");
  step_trace_.begin(context_.trace());
  const TracePhase phase(context_.trace(), "forward and backward");
  const uint64_t index = take_in(batch);
  passes_.enter(Activity::recorded_passes, forwards_);
  context_.random().set_position(static_cast<uint64_t>(step_.steps()), index);
  const MicroBatchKind kind{.first = backwards_ == 0, .last = backwards_ + 1 == num_backwards()};
  stores_.gradients->begin_micro_steps(backwards_, 1, num_backwards());
  const auto passes = [&](const nn::Batch& inputs, const autograd::RecordedSeed& seed) {
    runner_.begin_forward(kind);
    const Runner::Pass pass(runner_);
    const autograd::ExpectedLossGradient expected({.recorded = &seed});
    const TrainingForward forward(config_, saved_inputs_.store());
    const Tensor loss = model_.loss(inputs);
    pass.end();
    runner_.begin_backward(kind);
    autograd::backward(loss, seed.gradient());
    pass.end();
    stores_.gathered->end_passes();
    stores_.gradients->complete_micro_steps();
    return loss;
  };
  Tensor sum;
  try {
    sum = passes_.named(
        [&] { return recorded_->run(batch, kind, step_.seed(batch.num_targets), passes); });
  } catch (...) {
    // The gathers of a recording that failed have never run.
    stores_.gathered->end_passes();
    throw;
  }
  runner_.end_backward(kind);
  step_.add(sum, batch.num_targets);
  ++backwards_;
  ++micro_steps_;
  stepped_ = false;
}

void StepPasses::run_side_by_side(std::span<const nn::Batch> batches) {
  require_none_done();
  step_trace_.begin(context_.trace());
  const std::vector<parallel::SideBySide> micro_batches = take_in(batches);
  parallel::VerticalPasses passes(model_, static_cast<uint64_t>(step_.steps()), micro_batches);
  const MicroBatchKind kind{.first = true, .last = true};
  {
    const TracePhase phase(context_.trace(), "forward");
    forward_pass(kind, [&] {
      passes.forward([this](int64_t i) { passes_.enter(Activity::forward, i + 1); });
    });
  }
  const TracePhase phase(context_.trace(), "backward");
  const auto count = static_cast<int64_t>(batches.size());
  stores_.gradients->begin_micro_steps(0, count, count);
  const auto enter_backward = [this](int64_t i) {
    passes_.enter(Activity::backward, i + 1);
    stores_.gradients->enter(i);
  };
  const auto to_loss = [this](int64_t i, const auto& work) {
    const TrainingForward forward(config_, saved_inputs_.store());
    passes_.enter(Activity::forward, i + 1);
    passes_.named(work);
    saved_inputs_.settle();
    passes_.enter(Activity::backward, i + 1);
  };
  backward_pass(kind, [&] {
    passes.backward(enter_backward, to_loss, [&] { step_.expect(passes.losses()); });
  });
  for (const BatchLoss& loss : passes.losses()) step_.add(loss.sum, loss.num_targets);
  micro_steps_ = backwards_ = count;
  stepped_ = false;
}

void StepPasses::run_pipeline(std::span<const nn::Batch> batches) {
  require_none_done();
  step_trace_.begin(context_.trace());
  const std::vector<parallel::SideBySide> micro_batches = take_in(batches);
  parallel::PipelinePasses passes(*cut_, *whole_.pipe(), static_cast<uint64_t>(step_.steps()),
                                  micro_batches);
  for (const parallel::PipelineOp& op : program_.program.pipeline) {
    const TracePhase phase(context_.trace(), name_of(op.work).data());
    if (!is_pass(op.work)) {
      passes.exchange(op);
    } else if (op.work == parallel::PipelineWork::forward) {
      passes_.enter(Activity::forward, op.micro_batch + 1);
      const double seed = micro_batches[static_cast<size_t>(op.micro_batch)].seed;
      forward_pass(kind_of(op), [&] {
        const autograd::ExpectedLossGradient expected(seed);
        passes.forward(op);
      });
    } else {
      backward_in_pipeline(passes, op);
    }
  }
  micro_steps_ = backwards_ = config_.batch.accumulation;
  stepped_ = false;
}

MicroBatchKind StepPasses::kind_of(const parallel::PipelineOp& op) const {
  return {.first = op.micro_batch == 0,
          .last = op.micro_batch + 1 == config_.batch.accumulation,
          .part = op.part};
}

void StepPasses::backward_in_pipeline(parallel::PipelinePasses& passes,
                                      const parallel::PipelineOp& op) {
  const bool is_deferred = op.work == parallel::PipelineWork::weights;
  passes_.enter(Activity::backward, op.micro_batch + 1);
  stores_.gradients->begin_micro_steps(op.micro_batch, 1, config_.batch.accumulation,
                                       {.part = op.part, .deferred = is_deferred});
  if (is_deferred)
    return backward_pass(
        kind_of(op), [&] { passes.weights(op); }, true);
  backward_pass(kind_of(op),
                [&] { passes.backward(op, program_.policy.pipeline.splits_backward()); });
  if (op.part + 1 != cut_->num_parts()) return;
  const BatchLoss loss = passes.loss(op.micro_batch);
  step_.add(loss.sum, loss.num_targets);
}

std::string StepPasses::moment() const {
  return passes_.activity() == Activity::step ? step_.moment() : passes_.moment();
}

}  // namespace zinc::zero
