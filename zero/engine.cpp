#include "zero/engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/loss_scope.h"
#include "autograd/mode.h"
#include "autograd/recompute.h"
#include "autograd/remade.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "kernels/attention_library.h"
#include "kernels/gemm_choice.h"
#include "kernels/scale.h"
#include "nn/linear.h"
#include "optim/factory.h"
#include "optim/schedule.h"
#include "parallel/sequence_ranks.h"
#include "parallel/tensor_ranks.h"
#include "zero/agreement.h"
#include "zero/edited_parameters.h"
#include "zero/gather_values.h"
#include "zero/group/gradient_policy.h"
#include "zero/layout/shard_group.h"
#include "zero/own_values.h"
#include "zero/passes/step_program.h"
#include "zero/program/pipeline_cut.h"
#include "zero/resident_values.h"
#include "zero/run/lockstep.h"
#include "zero/run/pipeline_passes.h"
#include "zero/run/recorded_passes.h"
#include "zero/run/runner.h"
#include "zero/run/vertical_passes.h"
#include "zero/strategy.h"
#include "zero/tiers/saved_inputs.h"
#include "zero/trace/phase_clock.h"
#include "zero/trace/step_trace.h"
#include "zero/update/update_rules.h"
#include "zero/update/whole_step.h"
#include "zero/values_at_end.h"

namespace zinc::zero {

double Loss::mean() const {
  if (num_targets == 0) return std::numeric_limits<double>::quiet_NaN();
  return sum.item() / static_cast<double>(num_targets);
}

double Evaluation::mean() const {
  if (num_targets == 0) return std::numeric_limits<double>::quiet_NaN();
  return loss_sum / static_cast<double>(num_targets);
}

namespace {

// Once it is checked, with the model's longest sequence where it names none, and the ranks of the
// world's pipeline. Throws ConfigError.
EngineConfig validated(EngineConfig config, const nn::Model& model, const comm::World& world) {
  config.pipeline.ranks = world.mesh().pipe;
  validate(config);
  if (config.batch.sequence == 0) {
    config.batch.sequence = std::max<int64_t>(1, model.max_sequence());
  }
  return config;
}

// What holds while the forward pass of a training step runs, whichever way it runs. `inputs`: where
// inputs of recomputed blocks are saved; null: where they are.
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

// The world itself, where the configuration can be run in it. Throws ConfigError.
comm::World& checked(comm::World& world, const EngineConfig& config, bool dynamic_model) {
  if (dynamic_model && world.pipe() != nullptr) {
    throw ConfigError(
        "EngineOptions::dynamic_model does not go with zinc.mesh.pipe: a rank has to know what "
        "comes from the one before it; take pipe 1");
  }
  if (config.cuda_graph && !world.mesh().is_flat()) {
    throw ConfigError(str("\"cuda_graph\": true does not go with zinc.mesh.",
                          world.tensor() != nullptr ? "tensor" : "sequence",
                          " yet; leave one out"));
  }
  if (config.determinism == Determinism::mesh) {
    if (world.sequence() != nullptr) {
      throw ConfigError(
          "\"determinism\": \"mesh\" does not go with zinc.mesh.sequence: sums follow its ranks; "
          "take \"world\", or sequence 1");
    }
    const int ranks = world.tensor() == nullptr ? 1 : world.tensor()->size();
    if (kFixedSlices % ranks != 0) {
      throw ConfigError(str("\"determinism\": \"mesh\" cuts layers into ", kFixedSlices,
                            " slices, which ", ranks,
                            " tensor ranks cannot share; take zinc.mesh.tensor 1, 2 or 4, or "
                            "\"determinism\": \"world\""));
    }
  }
  if (config.spans_worlds() && !std::has_single_bit(static_cast<unsigned>(world.shards().size()))) {
    throw ConfigError(str(
        "\"determinism\": \"", name_of(config.determinism), "\" needs a power of two of data ranks",
        world.sequence() != nullptr ? " x sequence ranks" : "", ", not ", world.shards().size()));
  }
  if (config.cuda_graph && !world.context().device().is_cuda()) {
    throw ConfigError("\"cuda_graph\": true needs a GPU: leave it out, or take --device cuda");
  }
  if (config.cuda_graph && config.zero.stage == 3 && world.size() > 1 &&
      !world.communicator().follows_streams()) {
    throw ConfigError(
        str("\"cuda_graph\": true on stage 3 needs NCCL, and a GPU for every rank: ranks gather "
            "inside a pass, and collectives of ",
            world.communicator().backend(),
            " go through the host, which no graph can hold; or take stage 0, 1 or 2"));
  }
  return world;
}

// InvalidArgument where an update that began with run_passes() works on the weights.
void require_weights_at_rest(bool updating) {
  require(!updating,
          "engine: weights are under update since run_passes(); call step() first, or forward() "
          "and backward() instead");
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

// A client's own, taken out of the options, or the configured one. Throws ConfigError.
std::unique_ptr<optim::Optimizer> choose_optimizer(const EngineConfig& config,
                                                   EngineOptions& options, uint64_t seed) {
  if (options.optimizer != nullptr) {
    if (config.zero.stage >= 1 && !config.zero.allow_untested_optimizer) {
      throw ConfigError(str("a client's own optimizer (", options.optimizer->name(),
                            ") on ZeRO stage ", config.zero.stage,
                            " needs \"zero_allow_untested_optimizer\": true"));
    }
    if (config.zero.offload_optimizer.device != OffloadDevice::none &&
        config.zero.force_cpu_optimizer) {
      throw ConfigError(str("a client's own optimizer (", options.optimizer->name(),
                            ") with offload_optimizer needs \"zero_force_ds_cpu_optimizer\": "
                            "false"));
    }
    return std::move(options.optimizer);
  }
  return optim::make_optimizer(config.optimizer, seed);
}

int64_t recompute_every(nn::Model& model, const RecomputeConfig& recompute) {
  if (recompute.num_checkpoints == 0) return recompute.every_blocks;
  const int64_t blocks = model.num_blocks();
  return std::max<int64_t>(1, (blocks + recompute.num_checkpoints - 1) / recompute.num_checkpoints);
}

// A batch of the shapes of the run.
ExampleBatch example_of(nn::Model& model, const EngineConfig& config, bool knows_sequence,
                        const EngineOptions& options) {
  if (options.example) return options.example;
  const int64_t most = model.max_sequence();
  const int64_t positions = most > 0         ? std::min(config.batch.sequence, most)
                            : knows_sequence ? config.batch.sequence
                                             : 0;
  return [&model, rows = config.batch.micro_batch, positions] {
    return model.example(rows, positions);
  };
}

// ConfigError where states of parameters that several ranks of a pipeline have leave the device.
void require_tied_on_device(nn::Model& model, const PipelineCut& cut, const EngineConfig& config) {
  if (config.zero.offload_optimizer.device == OffloadDevice::none) return;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (!parameter->requires_grad() || cut.holders(*parameter).size() == 1) continue;
    throw ConfigError(
        str("offload_optimizer does not go with zinc.mesh.pipe yet where ranks of "
            "the pipeline have a parameter together, as ",
            parameter->name(), ": leave one out, or untie the embeddings"));
  }
}

// Sets the model's dtype and recomputation, and cuts it for the ranks of a pipeline; null where
// there is none. Throws ConfigError where the configuration asks for what the model cannot do.
std::unique_ptr<PipelineCut> prepare_model(nn::Model& model, const EngineConfig& config,
                                           comm::World& world, const ExampleBatch& example) {
  model.set_dtype(config.precision.dtype);
  model.set_recompute_every(recompute_every(model, config.recompute), config.recompute.most_blocks);
  if (config.pass_order == PassOrder::vertical &&
      nn::find_interface<nn::Staged>(model) == nullptr) {
    throw ConfigError(str("\"schedule\": \"vertical\" needs a model that says its stages, and ",
                          model.model_type(), " does not: derive it from zinc::nn::Staged too"));
  }
  if (world.pipe() == nullptr) return nullptr;
  auto cut = std::make_unique<PipelineCut>(model, example, config.pipeline, world);
  require_tied_on_device(model, *cut, config);
  return cut;
}

// Of what this rank has of the model.
std::vector<ShardGroup> groups_of(nn::Model& model, const EngineConfig& config, int world,
                                  const PipelineCut* cut) {
  if (cut == nullptr) {
    return make_shard_groups(model, world, config.zero.param_persistence_threshold);
  }
  return make_shard_groups(
      model, world, config.zero.param_persistence_threshold,
      [cut](const autograd::Parameter& parameter) { return cut->part_of(parameter); });
}

// The program of a step as configured, with a client's passes.
StepProgram plan_step(nn::Model& model, const std::vector<ShardGroup>& groups,
                      const EngineConfig& config, const ExampleBatch& example,
                      const Context& context, const EngineOptions& options, PipelineCut* cut) {
  const autograd::RemakeScope remakes(config.recompute.selective);
  StepPolicy policy = choose_policy(config, groups, context.device(), options.dynamic_model);
  if (cut != nullptr) {
    policy.pipeline = {.rank = cut->rank(),
                       .size = cut->size(),
                       .micro_batches = config.batch.accumulation,
                       .schedule = config.pipeline.schedule,
                       .parts = cut->num_parts()};
  }
  return make_step_program(model, groups, policy, example, config.batches_together(),
                           {.passes = options.passes, .without = options.without_passes}, cut);
}

// True, or CommError where the ranks' hashes differ. Collective.
bool agrees(comm::World& world, uint64_t schedule, uint64_t parameter_groups) {
  require_agreement(world,
                    std::array{Fingerprint{"schedule or layout", schedule},
                               Fingerprint{"split into parameter groups", parameter_groups}});
  return true;
}

// Absent where it is not known.
std::optional<int64_t> run_length(const EngineOptions& options) {
  if (options.total_steps <= 0) return std::nullopt;
  return options.total_steps;
}

// Host memory of the parameter's shape in the optimizer's dtype.
Tensor host_tensor(const nn::Parameter& parameter) {
  return Tensor::empty(parameter.shape(),
                       parameter.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

// By plane.
std::vector<std::string_view> kinds_of(const optim::Optimizer& optimizer) {
  std::vector<std::string_view> kinds{kWeightsKind};
  for (int i = 0; i < optimizer.num_states(); ++i) kinds.push_back(optimizer.state_name(i));
  return kinds;
}

// InvalidArgument where the source lacks anything that the model has, or has it in another shape.
void require_fit(const StateSource& source, nn::Model& model,
                 std::span<const std::string_view> kinds) {
  std::vector<std::string> problems;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (parameter->numel() == 0) continue;
    for (const std::string_view kind : kinds) {
      if (kind != kWeightsKind && !parameter->requires_grad()) continue;
      const std::optional<Shape> shape = source.shape_of(parameter->name(), kind);
      if (!shape) {
        problems.push_back(str(kind, " of ", parameter->name(), ": missing"));
      } else if (*shape != parameter->whole_shape()) {
        problems.push_back(str(kind, " of ", parameter->name(), ": shape ", *shape,
                               ", the model has ", parameter->whole_shape()));
      }
    }
  }
  if (problems.empty()) return;
  constexpr size_t kShown = 10;
  std::string message = "engine.import_state: the state is not of this model and optimizer:";
  for (size_t i = 0; i < std::min(problems.size(), kShown); ++i) message += "\n  " + problems[i];
  if (problems.size() > kShown) {
    message += str("\n  and ", problems.size() - kShown, " more");
  }
  throw InvalidArgument(message);
}

// Dropout is off while it lives.
class EvaluationScope {
 public:
  explicit EvaluationScope(nn::Model& model) : model_(model), training_(model.is_training()) {
    model_.train(false);
  }
  ~EvaluationScope() { model_.train(training_); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  nn::Model& model_;
  bool training_;
};

// Which kernels the context takes while an engine lives, if the configuration says so.
class ChosenKernels {
 public:
  ChosenKernels(Context& context, kernels::WgmmaUse use)
      : gemm_(context.slot<kernels::GemmChoice>().use),
        attention_(context.slot<kernels::WgmmaAttention>().use),
        gemm_before_(gemm_),
        attention_before_(attention_) {
    if (use != kernels::WgmmaUse::by_table) gemm_ = attention_ = use;
  }
  ~ChosenKernels() {
    gemm_ = gemm_before_;
    attention_ = attention_before_;
  }
  ChosenKernels(const ChosenKernels&) = delete;
  ChosenKernels& operator=(const ChosenKernels&) = delete;

 private:
  kernels::WgmmaUse &gemm_, &attention_;
  kernels::WgmmaUse gemm_before_, attention_before_;
};

// The model's layers and sequences are shared by the tensor and sequence ranks of a mesh, as far as
// there are any, while it lives; and its linear layers multiply in 8 bits, if the configuration
// says so.
class SharedModel {
 public:
  SharedModel(nn::Model& model, comm::World& world, const EngineConfig& config)
      : model_(model), fp8_(config.fp8) {
    const bool fixes_slices = config.determinism == Determinism::mesh;
    if (world.tensor() != nullptr || fixes_slices) {
      tensor_ = parallel::make_tensor_ranks(world.tensor());
      tensor_->fix_slices(fixes_slices ? kFixedSlices : 0);
    }
    if (world.sequence() != nullptr) {
      sequence_ = parallel::make_sequence_ranks(*world.sequence(), config.sequence_exchange);
    }
    try {
      parallel::share_sequence(model, sequence_.get());
      parallel::share_tokens(model, tensor_ != nullptr && config.tensor_sequence_parallel);
      parallel::share_layers(model, tensor_.get());
      if (fp8_) {
        require_device(Context::current().device(), DType::bf16, /*fp8=*/true);
        nn::use_fp8(model);
      }
    } catch (...) {
      end();
      throw;
    }
  }
  ~SharedModel() { end(); }
  SharedModel(const SharedModel&) = delete;
  SharedModel& operator=(const SharedModel&) = delete;

 private:
  void end() {
    parallel::share_sequence(model_, nullptr);
    parallel::share_tokens(model_, false);
    model_.share_over(nullptr);
    if (fp8_) nn::use_fp8(model_, false);
  }

  nn::Model& model_;
  bool fp8_;
  std::unique_ptr<nn::TensorRanks> tensor_;
  std::unique_ptr<nn::SequenceRanks> sequence_;
};

}  // namespace

class Engine::Impl {
  static constexpr const char* kStep = "step";

 public:
  Impl(nn::Model& model, const EngineConfig& config, comm::World& world, EngineOptions options)
      : config_(validated(config, model, world)),
        model_(model),
        whole_(checked(world, config_, options.dynamic_model)),
        world_(world.shards()),
        context_(world.context()),
        clock_(config_.wall_clock_breakdown, context_),
        values_(model, options.weights, context_.random().seed()),
        is_clients_(options.optimizer != nullptr),
        optimizer_(choose_optimizer(config_, options, context_.random().seed())),
        shared_(model, world, config_),
        kernels_(context_, config_.wgmma),
        example_(example_of(model, config_, config.batch.sequence > 0, options)),
        cut_(prepare_model(model, config_, world, example_)),
        groups_(groups_of(model, config_, world_.size(), cut_.get())),
        program_(plan_step(model, groups_, config_, example_, context_, options, cut_.get())),
        rules_(model, groups_, std::move(options.parameter_groups), config_.optimizer.hyper,
               optimizer_->state_dtype() != DType::f32),
        agreed_(agrees(world_, program_.hash, rules_.hash())),
        strategy_(make_strategy(config_, strategy_inputs())),
        lockstep_(make_lockstep(program_.policy.shards_parameters, groups_, world_)),
        recorded_(
            make_recorded_passes(config_, options.dynamic_model, world_, *strategy_.gradients)),
        step_(step_parts(), {config_.schedule, config_.optimizer, run_length(options)}),
        runner_(runner_parts(options)) {
    values_.drop_resident();
    world_.communicator().set_reduce_algorithm(config_.gradient.reduce_algorithm ==
                                                       ReduceAlgorithm::native
                                                   ? comm::ReduceAlgorithm::native
                                                   : comm::ReduceAlgorithm::ordered);
    serve(model, groups_, runner_);
    after_step_ = std::move(options.after_step);
  }

  ~Impl() { leave_values(model_, strategy_, !step_.is_updating()); }

  Loss forward(const nn::Batch& batch) {
    require(cut_ == nullptr,
            "engine.forward: in a pipeline all micro-batches of a step pass together; call "
            "engine.run_passes(), or zinc::train_batch(engine, loader)");
    require(config_.batches_together() == 1,
            "engine.forward: \"schedule\": \"vertical\" takes all micro-batches of a step "
            "together; call engine.run_passes()");
    step_trace_.begin(context_.trace());
    const TracePhase phase(context_.trace(), "forward");
    const uint64_t index = take_in(batch);
    const auto start = clock_.start();
    enter("forward", forwards_);
    context_.random().set_position(static_cast<uint64_t>(step_.steps()), index);
    runner_.begin_forward(
        {.first = forwards_ == 1, .last = forwards_ == config_.batch.accumulation});
    const Runner::Pass pass(runner_);
    const autograd::ExpectedLossGradient expected(seed_of(batch.num_targets));
    const TrainingForward forward(config_, saved_inputs_.store());
    Loss loss{.sum = named([&] { return model_.loss(batch); }), .num_targets = batch.num_targets};
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
    enter("backward", micro_steps_ + 1);
    const int64_t left = no_sync_ ? 1 : 0;  // more are to come
    if (hands_over_ && !no_sync_ && micro_steps_ + 1 == config_.batch.accumulation) {
      step_.expect({{loss.sum, loss.num_targets}});
    }
    const MicroBatchKind kind{.first = backwards_ == 0,
                              .last = backwards_ + 1 == num_backwards() + left};
    strategy_.gradients->begin_micro_steps(backwards_, 1, num_backwards() + left);
    runner_.begin_backward(kind);
    const Runner::Pass pass(runner_);
    autograd::backward(loss.sum, seed_of(loss.num_targets));
    pass.end();
    runner_.end_backward(kind);
    step_.add(loss.sum, loss.num_targets);
    ++backwards_;
    clock_.stop(start, &PhaseSeconds::backward);
    if (no_sync_) return;
    ++micro_steps_;
    stepped_ = false;
  }

  void run_passes(std::span<const nn::Batch> batches) {
    require(static_cast<int64_t>(batches.size()) == config_.batches_per_call(),
            "engine.run_passes: ", batches.size(), " batches instead of ",
            config_.batches_per_call());
    if (cut_ != nullptr) {
      run_pipeline(batches);
    } else if (recorded_ != nullptr && !no_sync_) {
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
    step_trace_.end(context_, step_.steps());
    if (after_step_) after_step_();
    return result;
  }

  // Without the mark in the trace.
  StepResult step_now() {
    const TracePhase phase(context_.trace(), "step");
    require(!no_sync_, "engine.step: not while a NoSync lives; end it before the last backward()");
    require(!stepped_, "engine.step: there was no backward() since the last step()");
    stepped_ = true;
    if (micro_steps_ < config_.batch.accumulation) return {};
    const auto start = clock_.start();
    activity_ = kStep;
    StepResult result = runner_.run_step();
    micro_steps_ = forwards_ = backwards_ = 0;
    clock_.stop(start, &PhaseSeconds::step);
    result.phases = clock_.take();
    return result;
  }

  Tensor gradient(std::string_view name) {
    require(!stepped_ && micro_steps_ == config_.batch.accumulation,
            "engine.gradient: gradients are complete between the last backward() of a step and its "
            "step()");
    const nn::Parameter& parameter = model_.parameter(name);
    require_trained_in_pipeline(parameter);
    activity_ = "reduction of the gradients";
    const double divisor = step_.end_gradients();
    strategy_.update->settle_gradients();
    const Tensor values = host_tensor(parameter);
    if (!is_here(parameter)) return whole_of(parameter, on_all_stages(parameter, values));
    strategy_.weights->read_owned(
        index_of(parameter, groups_),
        [this](const Slice& slice) { return strategy_.gradients->gradient(slice); }, flat(values));
    kernels::scale({.x = flat(values), .factor = 1.0 / divisor, .y = flat(values)},
                   context_.compute());
    const Tensor whole = whole_of(parameter, on_all_stages(parameter, values));
    context_.compute()->synchronize();
    return whole;
  }

  void edit(const std::vector<std::string>& names,
            const std::function<void(EditedParameters&)>& change, int modifier) {
    require_between_steps("edit");
    ++values_set_;
    finish_update();
    edit_parameters(
        whole_, names, change, modifier,
        [this](const std::string& name) { return values_of(name); },
        [this](const std::string& name, const Tensor& values) { set_parameter(name, values); });
  }

  void begin_no_sync() {
    require(!no_sync_, "NoSync: there is one already");
    require(cut_ == nullptr, "NoSync: in a pipeline all micro-batches of a step pass together");
    require_sums_without_sync(config_);
    no_sync_ = true;
  }
  void end_no_sync() noexcept { no_sync_ = false; }

  Evaluation evaluate(const nn::Batch& batch) {
    const TracePhase phase(context_.trace(), "evaluation");
    Tensor sum;
    evaluated("evaluation", Runner::Follows::program,
              [&] { sum = cut_ != nullptr ? loss_of_pipeline(batch) : model_.loss(batch); });
    double loss = sum.defined() ? sum.item() : 0.0;
    if (cut_ != nullptr) loss = last_values(*whole_.pipe(), std::array{loss}).front();
    return {.loss_sum = loss, .num_targets = batch.num_targets};
  }

  Tensor next_logits(const Tensor& ids) {
    require_whole_model("next_logits");
    auto& lm = nn::require_interface<nn::CausalLm>(model_, "engine.next_logits");
    Tensor logits;
    evaluated("generation", Runner::Follows::program, [&] { logits = lm.next_logits(ids); });
    return logits;
  }

  void predict(const std::function<void()>& work) {
    require_whole_model("predict");
    const TracePhase phase(context_.trace(), "prediction");
    evaluated("prediction", Runner::Follows::uses, work);
  }

  // See Note [Updates during backward].
  void require_no_update() const { require_weights_at_rest(step_.is_updating()); }

  // Mixed values would train on without a word.
  void require_one_state() const {
    require(
        !is_mixed_,
        "engine: import_state() has failed half-way, and values of two states are mixed; import "
        "a whole one first");
  }

  optim::Schedule& next_learning_rates() {
    require_no_update();
    return step_.learning_rates();
  }

  void finish_update() { strategy_.update->finish(); }

  bool is_here(const nn::Parameter& parameter) const {
    return cut_ == nullptr || cut_->is_here(parameter);
  }

  // The values that the rank which speaks for the parameter has, on all ranks of a pipeline.
  Tensor on_all_stages(const nn::Parameter& parameter, const Tensor& values) {
    if (cut_ == nullptr || parameter.numel() == 0) return values;
    whole_.pipe()
        ->communicator()
        .broadcast({.inout = flat(values), .root = cut_->holders(parameter).front()},
                   context_.compute())
        .wait();
    return values;
  }

  // On all ranks, before one of them waits for another.
  void require_trained_in_pipeline(const nn::Parameter& parameter) const {
    require(cut_ == nullptr || parameter.requires_grad(), "parameter '", parameter.name(),
            "' is frozen: it has neither gradient nor optimizer state");
  }

  void require_whole_model(const char* call) const {
    require(cut_ == nullptr, "engine.", call,
            ": in a pipeline no rank has the whole model; save its weights and load them without "
            "zinc.mesh.pipe, or call engine.release_to_model() and the model itself");
  }

  // What every rank that shares the parameter has of it. Collective where ranks do.
  Tensor whole_of(const nn::Parameter& parameter, const Tensor& here) {
    if (!parameter.slice()) return here;
    return parallel::whole_of(*whole_.tensor(), *parameter.slice(), here);
  }

  Tensor values_of(std::string_view name, std::optional<std::string_view> state = {}) {
    return whole_of(model_.parameter(name), values_here(name, state));
  }

  Tensor values_here(std::string_view name, std::optional<std::string_view> state = {}) {
    require_no_update();
    finish_update();
    activity_ = "reading of weights";
    const nn::Parameter& parameter = model_.parameter(name);
    const Tensor values = host_tensor(parameter);
    if (state) {
      const int index = optimizer_->state_index(*state);
      require_trained_in_pipeline(parameter);
      if (is_here(parameter)) {
        strategy_.weights->read_state(index_of(parameter, groups_), index, flat(values));
      }
    } else if (is_here(parameter)) {
      strategy_.weights->read_master(index_of(parameter, groups_), flat(values));
    }
    return on_all_stages(parameter, values);
  }

  void release_to_model() {
    require_between_steps("release_to_model");
    finish_update();
    release_values(model_, [this](const std::string& name) { return values_here(name); });
    runner_.close();
  }

  void require_between_steps(const char* call) const {
    runner_.require_open();
    require(backwards_ == 0 && !step_.is_updating(), "engine.", call,
            ": gradients of a step under way belong to the old values; call it between steps");
    rules_.gate().wait_for_all();
  }

  void set_parameter(std::string_view name, const Tensor& values) {
    require_between_steps("set_parameter");
    ++values_set_;
    finish_update();
    const nn::Parameter& parameter = model_.parameter(name);
    require(values.shape() == parameter.whole_shape(), "parameter '", name, "' has shape ",
            parameter.whole_shape(), ", the values have ", values.shape());
    if (!is_here(parameter)) return;
    const Tensor here =
        parameter.slice() ? parallel::part_of(*parameter.slice(), values) : values.clone();
    strategy_.weights->write_master(index_of(parameter, groups_), flat(here));
  }

  void read_own(Own what, const TakeOwn& take, bool hold) {
    require_no_update();
    require_one_state();
    strategy_.update->finish_own();
    activity_ = "reading of weights";
    const std::vector<std::string_view> kinds = kinds_of(*optimizer_);
    const size_t count = what == Own::weights ? 1 : kinds.size();
    const bool holds = hold && can_hold();
    if (holds && strategy_.swapped != nullptr) {
      require(!rules_.gate().is_held(),
              "engine.read_own: values in swap space are held by one at a time: let go of those of "
              "before");
      if (!own_reader_) own_reader_.emplace(*strategy_.swapped, context_);
      own_reader_->begin();
    }
    const OwnHold held{rules_.gate(), own_reader_ ? &*own_reader_ : nullptr};
    // What several ranks have is handed out by the first of them.
    const auto hands_out = [this](const autograd::Parameter& parameter) {
      const bool is_main = whole_.tensor() == nullptr || whole_.tensor()->is_main();
      return (parameter.slice() || is_main) && (cut_ == nullptr || cut_->speaks_for(parameter));
    };
    read_own_values(groups_, *strategy_.weights, world_.communicator(), context_,
                    std::span(kinds).first(count), holds ? &held : nullptr, hands_out, take);
  }

  // Nothing that the optimizer has is on the device, or in memory that the next read uses again.
  bool can_hold() const {
    const OffloadConfig& offload = config_.zero.offload_optimizer;
    return offload.device == OffloadDevice::nvme ||
           (offload.device == OffloadDevice::cpu && offload.ratio >= 1.0 &&
            config_.zero.offload_param.device != OffloadDevice::nvme);
  }

  void import_state(const StateSource& source, const ImportOptions& options) {
    require_between_steps("import_state");
    finish_update();
    activity_ = "import of a state";
    std::vector<std::string_view> kinds = kinds_of(*optimizer_);
    if (!options.optimizer_states) kinds.resize(1);
    together(whole_, "import a state", [&] {
      if (options.strict) require_fit(source, model_, kinds);
      ++values_set_;
      is_mixed_ = true;
      load_from(source, kinds, options);
    });
    is_mixed_ = false;
  }

  void load_from(const StateSource& source, const std::vector<std::string_view>& kinds,
                 const ImportOptions& options) {
    const auto has = [&](const autograd::Parameter& parameter, int plane) {
      return source.shape_of(parameter.name(), kinds[static_cast<size_t>(plane)]) ==
             parameter.whole_shape();
    };
    std::vector<ReadValues> planes;
    for (const std::string_view kind : kinds) {
      planes.emplace_back(
          [&source, kind](const autograd::Parameter& parameter, int64_t begin, const View& out) {
            read_slice(parameter.slice(), begin, out, [&](int64_t at, const View& part) {
              source.read(parameter.name(), kind, at, part);
            });
          });
    }
    strategy_.weights->load(planes, options.strict ? HasValues() : has);
    if (options.counters) step_.restore(source.state());
  }

  GraphUse graph_use() const {
    if (recorded_ == nullptr) return {};
    return {.recorded = recorded_->num_recorded(),
            .launched = recorded_->num_launched(),
            .step_parts = recorded_->num_step_parts_launched()};
  }

  std::string moment() const {
    const std::string_view activity = activity_;
    const std::string at =
        runner_.last_used().empty() ? std::string() : str(", at ", runner_.last_used());
    if (activity == "forward" || activity == "backward") {
      return str(activity, " of micro-batch ", entered_, at);
    }
    if (activity == "evaluation" || activity == "prediction") return str(activity, at);
    return activity_ == kStep ? step_.moment() : std::string(activity);
  }

  EngineConfig config_;
  nn::Model& model_;
  comm::World& whole_;
  comm::World& world_;  // among which states are sharded
  Context& context_;
  PhaseClock clock_;
  ResidentValues values_;
  const bool is_clients_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  SharedModel shared_;
  ChosenKernels kernels_;
  const ExampleBatch example_;
  const std::unique_ptr<PipelineCut> cut_;  // null: this rank has all of the model
  std::vector<ShardGroup> groups_;
  StepProgram program_;
  UpdateRules rules_;
  bool agreed_;
  Strategy strategy_;
  std::optional<SwappedReader> own_reader_;   // once somebody holds what is in swap space
  std::unique_ptr<Lockstep> lockstep_;        // null: nothing is sharded
  std::unique_ptr<RecordedPasses> recorded_;  // null without "cuda_graph"
  WholeStep step_;
  Runner runner_;
  SavedInputs saved_inputs_{context_, config_, model_, whole_.tensor(), strategy_.swap_clock.get()};

  int64_t values_set_ = 0;   // EngineUsage
  bool is_mixed_ = false;    // an import has failed behind its begin
  int64_t micro_steps_ = 0;  // micro-batches that the step under way has had
  int64_t forwards_ = 0;     // since the last step: numbers batches that carry no index
  int64_t backwards_ = 0;    // since the last step, uncounted ones of NoSync too
  bool no_sync_ = false;
  bool stepped_ = true;
  const char* activity_ = "construction";
  int64_t entered_ = 0;  // micro-batch of the activity, from 1; 0: of no micro-batch
  StepTrace step_trace_;
  std::function<void()> after_step_;
  bool hands_over_ = false;  // run_passes(): the update may begin during backward

 private:
  // Checks a batch that goes forward, and gives the key of its random numbers: one of its own for
  // each rank that has a part of its tokens.
  uint64_t take_in(const nn::Batch& batch) {
    require_one_state();
    require_shape(batch, config_);
    const int64_t next = step_.steps() * config_.batch.accumulation + forwards_++;
    const comm::MeshPlace data = whole_.data();
    const int64_t index =
        batch.global_micro_batch >= 0 ? batch.global_micro_batch : next * data.size() + data.rank();
    const comm::Mesh& mesh = whole_.mesh();
    return static_cast<uint64_t>(index * mesh.sequence + mesh.sequence_of(whole_.rank()));
  }

  template <class Compute>
  void evaluated(const char* activity, Runner::Follows follows, const Compute& compute) {
    require_no_update();
    require_one_state();
    const EvaluationScope evaluation(model_);
    const autograd::NoGrad no_grad;
    enter(activity, 0);
    runner_.begin_evaluation(follows);
    try {
      const Runner::Pass pass(runner_);
      named(compute);
      pass.end();
    } catch (...) {
      strategy_.weights->end_passes();
      throw;
    }
    strategy_.weights->end_passes();
  }

  // What the model complains of says in which pass, and behind which parameter.
  template <class Compute>
  auto named(const Compute& compute) -> decltype(compute()) {
    try {
      return compute();
    } catch (const InvalidArgument& error) {
      const std::string_view used = runner_.last_used();
      throw InvalidArgument(str(error.what(), " (", activity_,
                                entered_ > 0 ? str(" of micro-batch ", entered_) : "",
                                used.empty() ? "" : str(", after ", used, " was used"), ")"));
    }
  }

  void enter(const char* activity, int64_t micro_batch) {
    activity_ = activity;
    entered_ = micro_batch;
  }

  void require_room(const char* call) const {
    require(micro_steps_ < config_.batch.accumulation, "engine.", call, ": all ",
            config_.batch.accumulation, " micro-batches of this step are done; call step() first");
  }
  // Of this step, as far as is known.
  int64_t num_backwards() const { return backwards_ + config_.batch.accumulation - micro_steps_; }

  // See Note [Recorded passes].
  void run_recorded(const nn::Batch& batch) {
    require_room("run_passes");
    step_trace_.begin(context_.trace());
    const TracePhase phase(context_.trace(), "forward and backward");
    const uint64_t index = take_in(batch);
    enter("recorded passes", forwards_);
    context_.random().set_position(static_cast<uint64_t>(step_.steps()), index);
    const MicroBatchKind kind{.first = backwards_ == 0, .last = backwards_ + 1 == num_backwards()};
    strategy_.gradients->begin_micro_steps(backwards_, 1, num_backwards());
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
      strategy_.weights->end_passes();
      strategy_.gradients->complete_micro_steps();
      return loss;
    };
    Tensor sum;
    try {
      sum = named([&] { return recorded_->run(batch, kind, seed_of(batch.num_targets), passes); });
    } catch (...) {
      // What was to be gathered by a recording that failed has never been.
      strategy_.weights->end_passes();
      throw;
    }
    runner_.end_backward(kind);
    step_.add(sum, batch.num_targets);
    ++backwards_;
    ++micro_steps_;
    stepped_ = false;
  }

  void run_side_by_side(std::span<const nn::Batch> batches) {
    require(stepped_ && backwards_ == 0,
            "engine.run_passes: all micro-batches of this step are done; call step() first");
    step_trace_.begin(context_.trace());
    const std::vector<SideBySide> micro_batches = take_in(batches);
    VerticalPasses passes(model_, static_cast<uint64_t>(step_.steps()), micro_batches);
    const MicroBatchKind kind{.first = true, .last = true};
    runner_.begin_forward(kind);
    {
      const TracePhase phase(context_.trace(), "forward");
      const auto start = clock_.start();
      const Runner::Pass pass(runner_);
      const TrainingForward forward(config_, saved_inputs_.store());
      named([&] { passes.forward([this](int64_t i) { enter("forward", i + 1); }); });
      saved_inputs_.settle();
      pass.end();
      clock_.stop(start, &PhaseSeconds::forward);
    }
    const TracePhase phase(context_.trace(), "backward");
    const auto start = clock_.start();
    const auto count = static_cast<int64_t>(batches.size());
    const std::vector<BatchLoss> losses = passes.losses();
    step_.expect(losses);
    strategy_.gradients->begin_micro_steps(0, count, count);
    runner_.begin_backward(kind);
    const Runner::Pass pass(runner_);
    passes.backward([this](int64_t i) {
      enter("backward", i + 1);
      strategy_.gradients->enter(i);
    });
    pass.end();
    runner_.end_backward(kind);
    for (const BatchLoss& loss : losses) step_.add(loss.sum, loss.num_targets);
    micro_steps_ = backwards_ = count;
    stepped_ = false;
    clock_.stop(start, &PhaseSeconds::backward);
  }

  std::vector<SideBySide> take_in(std::span<const nn::Batch> batches) {
    std::vector<SideBySide> micro_batches;
    for (const nn::Batch& batch : batches) {
      micro_batches.push_back({.batch = &batch,
                               .global_micro_batch = take_in(batch),
                               .seed = seed_of(batch.num_targets)});
    }
    return micro_batches;
  }

  // The stages of this rank of a pipeline, in the order of the step program.
  void run_pipeline(std::span<const nn::Batch> batches) {
    require(stepped_ && backwards_ == 0,
            "engine.run_passes: all micro-batches of this step are done; call step() first");
    step_trace_.begin(context_.trace());
    const std::vector<SideBySide> micro_batches = take_in(batches);
    PipelinePasses passes(*cut_, *whole_.pipe(), static_cast<uint64_t>(step_.steps()),
                          micro_batches);
    for (const parallel::PipelineOp& op : program_.program.pipeline) {
      const TracePhase phase(context_.trace(), name_of(op.work).data());
      switch (op.work) {
        case parallel::PipelineWork::forward:
          forward_in_pipeline(passes, op, micro_batches[static_cast<size_t>(op.micro_batch)].seed);
          break;
        case parallel::PipelineWork::backward:
          backward_in_pipeline(passes, op);
          break;
        case parallel::PipelineWork::weights:
          weights_in_pipeline(passes, op);
          break;
        default:
          passes.exchange(op);
      }
    }
    micro_steps_ = backwards_ = config_.batch.accumulation;
    stepped_ = false;
  }

  MicroBatchKind kind_of(const parallel::PipelineOp& op) const {
    return {.first = op.micro_batch == 0,
            .last = op.micro_batch + 1 == config_.batch.accumulation,
            .part = op.part};
  }

  void forward_in_pipeline(PipelinePasses& passes, const parallel::PipelineOp& op, double seed) {
    const auto start = clock_.start();
    enter("forward", op.micro_batch + 1);
    runner_.begin_forward(kind_of(op));
    const Runner::Pass pass(runner_);
    const autograd::ExpectedLossGradient expected(seed);
    const TrainingForward forward(config_, saved_inputs_.store());
    named([&] { passes.forward(op); });
    pass.end();
    clock_.stop(start, &PhaseSeconds::forward);
  }

  void backward_in_pipeline(PipelinePasses& passes, const parallel::PipelineOp& op) {
    const auto start = clock_.start();
    enter("backward", op.micro_batch + 1);
    strategy_.gradients->begin_micro_steps(op.micro_batch, 1, config_.batch.accumulation,
                                           {.part = op.part});
    runner_.begin_backward(kind_of(op));
    const Runner::Pass pass(runner_);
    passes.backward(op, program_.policy.pipeline.splits_backward());
    pass.end();
    runner_.end_backward(kind_of(op));
    if (op.part + 1 == cut_->num_parts()) {
      const BatchLoss loss = passes.loss(op.micro_batch);
      step_.add(loss.sum, loss.num_targets);
    }
    clock_.stop(start, &PhaseSeconds::backward);
  }

  void weights_in_pipeline(PipelinePasses& passes, const parallel::PipelineOp& op) {
    const auto start = clock_.start();
    enter("backward", op.micro_batch + 1);
    strategy_.gradients->begin_micro_steps(op.micro_batch, 1, config_.batch.accumulation,
                                           {.part = op.part, .deferred = true});
    runner_.begin_weights(kind_of(op));
    const Runner::Pass pass(runner_);
    passes.weights(op);
    pass.end();
    runner_.end_weights(kind_of(op));
    clock_.stop(start, &PhaseSeconds::backward);
  }

  // Of an evaluation; undefined but on the last rank.
  Tensor loss_of_pipeline(const nn::Batch& batch) {
    const SideBySide alone{.batch = &batch};
    PipelinePasses passes(*cut_, *whole_.pipe(), 0, std::span(&alone, 1));
    for (int part = 0; part < cut_->num_parts(); ++part) {
      using parallel::PipelineWork;
      if (!cut_->part(part).is_first) passes.exchange({PipelineWork::receive_input, 0, part});
      passes.forward({PipelineWork::forward, 0, part});
      if (!cut_->part(part).is_last) passes.exchange({PipelineWork::send_output, 0, part});
    }
    return passes.loss(0).sum;
  }

  NormPeers norm_peers() {
    NormPeers peers{.tensor = whole_.tensor(), .pipe = whole_.pipe()};
    if (cut_ == nullptr) return peers;
    for (const nn::Parameter* parameter : model_.parameters())
      peers.parameters.push_back(parameter);
    peers.speaker = [cut = cut_.get()](const autograd::Parameter& parameter) {
      return cut->holders(parameter).front();
    };
    return peers;
  }

  StrategyInputs strategy_inputs() {
    return {.groups = groups_,
            .program = program_,
            .communicator = world_.communicator(),
            .context = context_,
            .weights = values_,
            .clock = clock_,
            .states = optimizer_->states(),
            .wire_divisor = wire_divisor(config_.gradient, world_.size())};
  }

  WholeStep::Parts step_parts() {
    return {.config = config_,
            .world = world_,
            .sequence = whole_.mesh().sequence,
            .peers = norm_peers(),
            .cut = cut_.get(),
            .groups = groups_,
            .policy = program_.policy,
            .strategy = strategy_,
            .rules = rules_,
            .optimizer = *optimizer_,
            .has_own_optimizer = is_clients_,
            .recorded = recorded_.get()};
  }

  Runner::Parts runner_parts(EngineOptions& options) {
    return {.groups = groups_,
            .program = program_.program,
            .policy = program_.policy,
            .reduce_order = program_.record.reduce_order,
            .is_dynamic = options.dynamic_model,
            .weights = *strategy_.weights,
            .gradients = *strategy_.gradients,
            .step = step_,
            .update = *strategy_.update,
            .lockstep = lockstep_.get(),
            .on_place = std::move(options.on_place)};
  }

  double seed_of(int64_t num_targets) const { return step_.seed(num_targets); }

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
Tensor Engine::next_logits(const Tensor& ids) { return impl_->next_logits(ids); }
void Engine::run_prediction(const std::function<void()>& work) { impl_->predict(work); }
const EngineConfig& Engine::config() const { return impl_->config_; }
nn::Model& Engine::model() { return impl_->model_; }
comm::World& Engine::world() { return impl_->whole_; }
TrainingState Engine::state() const {
  TrainingState state = impl_->step_.state();
  state.optimizer = impl_->optimizer_->name();
  for (const std::string_view kind : kinds_of(*impl_->optimizer_)) state.kinds.emplace_back(kind);
  return state;
}
double Engine::learning_rate() const { return impl_->step_.learning_rates().lr(); }
void Engine::set_learning_rate(std::optional<double> value) {
  impl_->next_learning_rates().set_lr(value);
}
Tensor Engine::parameter(std::string_view name) { return impl_->values_of(name); }
Tensor Engine::optimizer_state(std::string_view name, std::string_view state) {
  return impl_->values_of(name, state);
}
void Engine::set_parameter(std::string_view name, const Tensor& values) {
  impl_->set_parameter(name, values);
}
void Engine::finish_update() { impl_->finish_update(); }
void Engine::release_to_model() { impl_->release_to_model(); }
void Engine::read_own(Own what, const TakeOwn& take, bool hold) {
  impl_->read_own(what, take, hold);
}
void Engine::import_state(const StateSource& source, const ImportOptions& options) {
  impl_->import_state(source, options);
}
EngineUsage Engine::usage() const {
  return {.swap = impl_->strategy_.swap_traffic() + impl_->saved_inputs_.traffic(),
          .graphs = impl_->graph_use(),
          .own = own_bytes(impl_->groups_, impl_->world_.size(), impl_->optimizer_->num_states()),
          .values_set = impl_->values_set_,
          .can_hold_own = impl_->can_hold()};
}
std::string Engine::moment() const { return impl_->moment(); }
Tensor Engine::gradient(std::string_view name) { return impl_->gradient(name); }
void Engine::edit(const std::vector<std::string>& names,
                  const std::function<void(EditedParameters&)>& change, int modifier) {
  impl_->edit(names, change, modifier);
}
Engine::NoSync::NoSync(Engine& engine) : engine_(engine) { engine.impl_->begin_no_sync(); }
Engine::NoSync::~NoSync() { engine_.impl_->end_no_sync(); }
const StepProgram& Engine::step_program() const { return impl_->program_; }

std::vector<Evaluation> gather(Engine& engine, const Evaluation& part) {
  engine.finish_update();
  const std::array<double, 2> values{part.loss_sum, static_cast<double>(part.num_targets)};
  const std::vector<double> all = gather_values(engine.world().shards(), values);
  const auto shares = static_cast<size_t>(engine.world().mesh().sequence);  // neighbouring ranks
  std::vector<Evaluation> parts;
  for (size_t i = 0; i < all.size(); i += 2) {
    if (i / 2 % shares > 0) {
      parts.back().loss_sum += all[i];
    } else {
      parts.push_back({.loss_sum = all[i], .num_targets = static_cast<int64_t>(all[i + 1])});
    }
  }
  return parts;
}

}  // namespace zinc::zero
