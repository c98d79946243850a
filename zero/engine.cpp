#include "zero/engine.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd/recompute.h"
#include "autograd/remade.h"
#include "comm/agreement.h"
#include "comm/gather_values.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/phase_clock.h"
#include "core/trace_marks.h"
#include "kernels/attention_library.h"
#include "kernels/gemm_choice.h"
#include "nn/attention/sparse_attention.h"
#include "nn/buffer.h"
#include "nn/embedding.h"
#include "nn/first_values.h"
#include "nn/linear.h"
#include "optim/factory.h"
#include "optim/schedule.h"
#include "parallel/pipeline_cut.h"
#include "parallel/shared_model.h"
#include "zero/config_rules.h"
#include "zero/group/gradient_policy.h"
#include "zero/layout/shard_group.h"
#include "zero/rewrites/step_program.h"
#include "zero/run/forward_passes.h"
#include "zero/run/lockstep.h"
#include "zero/run/recorded_passes.h"
#include "zero/run/runner.h"
#include "zero/run/step_passes.h"
#include "zero/strategy.h"
#include "zero/tiers/input_counter.h"
#include "zero/update/update_rules.h"
#include "zero/update/whole_step.h"
#include "zero/values/engine_values.h"

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

// The configuration without its settings of steps: EngineOptions::computes_only.
EngineConfig for_computing(EngineConfig config) {
  const EngineConfig plain;
  config.batch.accumulation = plain.batch.accumulation;
  config.gradient = plain.gradient;
  config.optimizer = plain.optimizer;
  config.schedule = plain.schedule;
  config.zero.offload_optimizer = plain.zero.offload_optimizer;
  config.zero.resident_memory = plain.zero.resident_memory;
  config.recompute = plain.recompute;
  config.pass_order = plain.pass_order;
  config.offload_step = plain.offload_step;
  config.gradient_offload = plain.gradient_offload;
  config.wall_clock_breakdown = plain.wall_clock_breakdown;
  config.cuda_graph = plain.cuda_graph;
  config.overlap_update = plain.overlap_update;
  return config;
}

// What is known of the world, the model and the options before a step is recorded.
ConfigFacts facts_of(nn::Model& model, comm::World& world, const EngineOptions& options) {
  ConfigFacts facts{
      .world = ConfigFacts::World{.mesh = world.mesh(),
                                  .shards = world.shards().size(),
                                  .on_gpu = world.context().device().is_cuda(),
                                  .gathers_in_streams =
                                      world.size() == 1 || world.communicator().follows_streams(),
                                  .backend = std::string(world.communicator().backend())},
      .model = std::string(model.model_type()),
      .has_stages = nn::find_interface<nn::Staged>(model) != nullptr,
      .is_dynamic = options.dynamic_model,
      .has_own_sums = options.gradient_sums != nullptr};
  if (options.optimizer != nullptr) facts.optimizer = std::string(options.optimizer->name());
  return facts;
}

// Returns a checked copy of the configuration, with the model's longest sequence where it names
// none, and the ranks of the world's pipeline. Throws ConfigError.
EngineConfig validated(EngineConfig config, nn::Model& model, comm::World& world,
                       const EngineOptions& options) {
  config.pipeline.ranks = world.mesh().pipe;
  config.gradient.signs =
      options.optimizer != nullptr && options.optimizer->sign_reduction() != nullptr;
  validate(config, facts_of(model, world, options));
  if (options.computes_only) config = for_computing(std::move(config));
  if (config.batch.sequence == 0) {
    config.batch.sequence = std::max<int64_t>(1, model.max_sequence());
  }
  return config;
}

// The rule of an engine that only computes: it keeps no states, and nothing calls it.
class NoOptimizer final : public optim::Optimizer {
 public:
  std::string_view name() const override { return "none"; }
  int num_states() const override { return 0; }
  std::string_view state_name(int) const override { return ""; }
  void update(const optim::Update&, const optim::HyperParameters&, StreamRef) const override {
    bug_check(false, "an update in an engine that only computes");
  }
};

// Throws InvalidArgument for states that the engine could not keep or tell apart, and for weights
// that the model has not.
void require_states(const optim::Optimizer& optimizer, DType model) {
  require(optimizer.weights_dtype() == DType::f32 || model == DType::bf16, "optimizer ",
          optimizer.name(), ": its weights_dtype() is ", optimizer.weights_dtype(),
          ", for models of bf16, and the model is ", model, ": set precision.dtype to bf16");
  const auto require_few = [&](std::string_view of, int count) {
    require(count >= 0 && count <= optim::kMaxOptimizerStates, "optimizer ", optimizer.name(), ": ",
            of, " has ", count, " states of an element; at most ", optim::kMaxOptimizerStates,
            " are kept");
  };
  require_few("the update", optimizer.num_states());
  const optim::States states = optimizer.states();
  const bool has_blocks =
      std::ranges::any_of(states.blocks, [](auto of) { return of.has_value(); });
  require(!states.apart || (states.beside_f32 == DType::f32 && states.weights == DType::f32 &&
                            !has_blocks && optimizer.whole_rule() == nullptr),
          "optimizer ", optimizer.name(),
          ": evaluated() is for rules of elements whose states are f32");
  if (optimizer.whole_rule() == nullptr) return;
  require_few("the whole rule", optimizer.whole_rule()->num_states());
  const int vectors = optimizer.whole_rule()->num_vectors();
  require(vectors >= 0 && vectors <= optim::kMaxVectors, "optimizer ", optimizer.name(),
          ": its whole rule has ", vectors, " vectors; at most ", optim::kMaxVectors, " are kept");
  std::set<std::string_view> names;
  for (const std::string_view name : optimizer.state_names()) {
    require(names.insert(name).second, "optimizer ", optimizer.name(), ": two states are called '",
            name, "': give those of the whole rule names of their own");
  }
}

// Takes the client's own optimizer out of the options, or makes the configured one.
std::unique_ptr<optim::Optimizer> choose_optimizer(const EngineConfig& config,
                                                   EngineOptions& options, uint64_t seed) {
  if (options.computes_only) {
    require(options.optimizer == nullptr && options.parameter_groups.empty() &&
                options.gradient_sums == nullptr,
            "EngineOptions::computes_only: such an engine updates nothing; leave optimizer, "
            "parameter_groups and gradient_sums out");
    return std::make_unique<NoOptimizer>();
  }
  if (options.optimizer == nullptr) return optim::make_optimizer(config.optimizer, seed);
  require_states(*options.optimizer, config.precision.dtype);
  return std::move(options.optimizer);
}

int64_t recompute_every(nn::Model& model, const RecomputeConfig& recompute) {
  if (recompute.num_checkpoints == 0) return recompute.every_blocks;
  const int64_t blocks = model.num_blocks();
  return std::max<int64_t>(1, (blocks + recompute.num_checkpoints - 1) / recompute.num_checkpoints);
}

// A batch of the shapes of the run.
struct RunExample {
  ExampleBatch batch;
  bool is_largest = false;  // known: no batch of the run is larger; else the model's limit
};

RunExample example_of(nn::Model& model, const EngineConfig& config, bool knows_sequence,
                      const EngineOptions& options) {
  if (options.example) return {.batch = options.example, .is_largest = true};
  const int64_t most = model.max_sequence();
  const int64_t positions = most > 0         ? std::min(config.batch.sequence, most)
                            : knows_sequence ? config.batch.sequence
                                             : 0;
  return {.batch = [&model, rows = config.batch.micro_batch,
                    positions] { return model.example(rows, positions); },
          .is_largest = knows_sequence};
}

// Throws ConfigError if states of parameters that several ranks of a pipeline have are off the
// device.
void require_tied_on_device(nn::Model& model, const parallel::PipelineCut& cut,
                            const EngineConfig& config) {
  for (const nn::Parameter* parameter : model.parameters()) {
    if (!parameter->requires_grad() || cut.holders(*parameter).size() == 1) continue;
    require_rules(config, {.shared_parameter = std::string(parameter->name())});
  }
}

// Sets the model's dtype and recomputation, and cuts it for the ranks of a pipeline; null where
// there is none. Throws ConfigError if the configuration asks for something that the model cannot
// do.
std::unique_ptr<parallel::PipelineCut> prepare_model(nn::Model& model, const EngineConfig& config,
                                                     comm::World& world,
                                                     const ExampleBatch& example) {
  model.set_dtype(config.precision.dtype);
  model.set_recompute_every(recompute_every(model, config.recompute), config.recompute.most_blocks);
  if (world.pipe() == nullptr) return nullptr;
  auto cut = std::make_unique<parallel::PipelineCut>(model, example, config.pipeline, world);
  require_tied_on_device(model, *cut, config);
  return cut;
}

bool is_matrix_of_block(const nn::Parameter& parameter) {
  const bool is_table = dynamic_cast<const nn::Embedding*>(&parameter.parent()) != nullptr;
  if (parameter.shape().rank() != 2 || is_table) return false;
  for (const nn::Module* module = &parameter.parent(); module != nullptr;
       module = module->parent()) {
    if (module->is_shard_unit()) return true;
  }
  return false;
}

// The parameters that the rule takes as a whole: it is asked for all, or for the trained weights of
// linear layers in the model's blocks. Throws ConfigError if ranks have slices of one.
std::set<const autograd::Parameter*> choose_whole(nn::Model& model, const optim::WholeRule* rule) {
  std::set<const autograd::Parameter*> whole;
  if (rule == nullptr) return whole;
  for (const nn::Parameter* parameter : model.parameters()) {
    if (!parameter->requires_grad()) continue;
    if (rule->asked() == optim::WholeRule::Asked::matrices && !is_matrix_of_block(*parameter)) {
      continue;
    }
    if (!rule->takes(*parameter)) continue;
    if (parameter->slice()) {
      throw ConfigError(
          str("optimizer.type: the update rule sees whole parameters, and each tensor ",
              "rank has a slice of ", parameter->name(),
              ": set zinc.mesh.tensor to 1, or take another optimizer"));
    }
    whole.insert(parameter);
  }
  return whole;
}

// The groups of the parameters that this rank has.
ShardGroups groups_of(nn::Model& model, const EngineConfig& config, int world,
                      const parallel::PipelineCut* cut, const LayoutOptions& options) {
  std::function<GroupPart(const autograd::Parameter&)> part_of;
  if (cut != nullptr) {
    part_of = [cut](const autograd::Parameter& parameter) { return cut->part_of(parameter); };
  }
  return make_shard_groups(model, world, config.zero.param_persistence_threshold, part_of, options);
}

// What is known of a step before the first one.
struct PlannedStep {
  StepProgram program;
  InputRoom inputs;  // of recomputed blocks, where they are moved when they are saved
};

// Plans a step as configured, with a client's rewrites.
PlannedStep plan_step(nn::Model& model, const ShardGroups& groups, const EngineConfig& config,
                      const RunExample& example, comm::World& world, const EngineOptions& options,
                      parallel::PipelineCut* cut) {
  const autograd::RemakeScope remakes(config.recompute.selective);
  InputCounter inputs(config.recompute.partition_activations && world.tensor() != nullptr
                          ? world.tensor()->size()
                          : 1);
  const nn::LargestBatchScope largest(example.is_largest);
  const autograd::RecomputeInputScope counts(config.recompute.moves_inputs() ? &inputs : nullptr);
  StepPolicy policy = choose_policy(config, groups, world.context().device(), options.dynamic_model,
                                    !options.computes_only);
  if (cut != nullptr && policy.trains()) {
    policy.pipeline = {.rank = cut->rank(),
                       .size = cut->size(),
                       .micro_batches = config.batch.accumulation,
                       .schedule = config.pipeline.schedule,
                       .parts = cut->num_parts()};
  }
  StepProgram program =
      make_step_program(model, groups, policy, example.batch, config.batches_together(),
                        {.rewrites = options.rewrites, .without = options.without_rewrites}, cut);
  // A rank of a pipeline may have no block that is recomputed.
  if (cut == nullptr) {
    require_rules(config, {.model = std::string(model.model_type()),
                           .recomputes = program.record.recomputes});
  }
  return {.program = std::move(program),
          .inputs = {.count = inputs.room().count,
                     .bytes = example.is_largest ? inputs.room().bytes : 0}};
}

// Returns true; throws CommError if the ranks' hashes differ. Collective.
bool agrees(comm::World& world, uint64_t schedule, uint64_t parameter_groups) {
  comm::require_agreement(
      world, std::array{comm::Fingerprint{"schedule or layout", schedule},
                        comm::Fingerprint{"split into parameter groups", parameter_groups}});
  return true;
}

// Absent if the length is not known.
std::optional<int64_t> run_length(const EngineOptions& options) {
  if (options.total_steps <= 0) return std::nullopt;
  return options.total_steps;
}

// Sets the kernels that the context takes while an engine lives, if the configuration says so.
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

parallel::SharedModelOptions sharing(const EngineConfig& config) {
  return {.fixed_slices = config.determinism == Determinism::mesh ? kFixedSlices : 0,
          .tokens = config.tensor_sequence_parallel,
          .exchange = config.sequence_exchange};
}

// The model's linear layers multiply in 8 bits while it lives, if the configuration says so.
class EightBitProducts {
 public:
  EightBitProducts(nn::Model& model, bool fp8) : model_(model), fp8_(fp8) {
    if (!fp8) return;
    require_device(Context::current().device(), DType::bf16, /*fp8=*/true);
    nn::use_fp8(model);
  }
  ~EightBitProducts() {
    if (fp8_) nn::use_fp8(model_, false);
  }
  EightBitProducts(const EightBitProducts&) = delete;
  EightBitProducts& operator=(const EightBitProducts&) = delete;

 private:
  nn::Model& model_;
  const bool fp8_;
};

// The model's attention has layouts of blocks while it lives, if the configuration says so.
class SparseAttention {
 public:
  SparseAttention(nn::Model& model, const EngineConfig& config, uint64_t seed)
      : model_(model), is_on_(config.sparse_attention.has_value()) {
    if (!is_on_) return;
    nn::use_sparse_attention(model, *config.sparse_attention,
                             {.tokens = config.batch.sequence, .seed = seed});
  }
  ~SparseAttention() {
    if (is_on_) nn::use_dense_attention(model_);
  }
  SparseAttention(const SparseAttention&) = delete;
  SparseAttention& operator=(const SparseAttention&) = delete;

 private:
  nn::Model& model_;
  const bool is_on_;
};

}  // namespace

class Engine::Impl {
 public:
  Impl(nn::Model& model, const EngineConfig& config, comm::World& world, EngineOptions options)
      : config_(validated(config, model, world, options)),
        model_(model),
        whole_(world),
        world_(world.shards()),
        context_(world.context()),
        clock_(config_.wall_clock_breakdown, context_),
        first_values_(model, options.weights, context_.random().seed()),
        is_clients_(options.optimizer != nullptr),
        optimizer_(choose_optimizer(config_, options, context_.random().seed())),
        shared_(model, world, sharing(config_)),
        products_(model, config_.fp8),
        sparse_(model, config_, context_.random().seed()),
        kernels_(context_, config_.wgmma),
        example_(example_of(model, config_, config.batch.sequence > 0, options)),
        cut_(prepare_model(model, config_, world, example_.batch)),
        whole_parameters_(choose_whole(model, optimizer_->whole_rule())),
        groups_(groups_of(model, config_, world_.size(), cut_.get(),
                          {.trains = !options.computes_only, .whole = whole_parameters_})),
        step_plan_(plan_step(model, groups_, config_, example_, whole_, options, cut_.get())),
        rules_(model, groups_, parameter_groups(options), config_.optimizer.hyper,
               optimizer_->sees_parameters()),
        agreed_(agrees(world_, program_.hash, rules_.hash())),
        stores_(make_stores(config_, store_inputs(options))),
        lockstep_(make_lockstep(program_.policy.shards_parameters, groups_, world_)),
        training_(make_training(options)),
        runner_(runner_parts(options)),
        passes_({.model = model,
                 .world = whole_,
                 .cut = cut_.get(),
                 .weights = *stores_.gathered,
                 .runner = runner_}),
        values_({.config = config_,
                 .model = model,
                 .world = whole_,
                 .cut = cut_.get(),
                 .groups = groups_,
                 .optimizer = *optimizer_,
                 .whole = whole_parameters_,
                 .stores = stores_,
                 .rules = rules_,
                 .step = training_ != nullptr ? &training_->step : nullptr}) {
    first_values_.drop_held();
    if (training_ != nullptr) begin_training();
    serve(model, groups_, runner_);
  }

  ~Impl() { values_.leave(/*may_use=*/shows_at_end()); }

  // What an engine that trains has beside its weights.
  struct Training {
    std::unique_ptr<RecordedPasses> recorded;  // null without "cuda_graph"
    WholeStep step;
    std::function<void()> after_step;
    std::optional<StepPasses> passes{};  // once there is a runner
  };

  // Throws InvalidArgument in an engine that only computes.
  Training& training(std::string_view call) const {
    require(training_ != nullptr, "engine.", call,
            ": this engine only computes, without gradients, optimizer states and update; make one "
            "without EngineOptions::computes_only");
    return *training_;
  }
  bool is_updating() const { return training_ != nullptr && training_->step.is_updating(); }

  // See Note [Updates during backward].
  void require_no_update() const {
    require(!is_updating(),
            "engine: weights are under update since run_passes(); call step() first, or forward() "
            "and backward() instead");
  }

  void require_between_steps(const char* call) const {
    runner_.require_open();
    require(training_ == nullptr || (training_->passes->is_between_steps() && !is_updating()),
            "engine.", call,
            ": gradients of a step under way belong to the old values; call it between steps");
    rules_.gate().wait_for_all();
  }

  // Note [Weights apart]: the model's copy gets the weights of passes of training, or of all
  // others.
  void show(bool evaluated) {
    if (training_ == nullptr || !optimizer_->evaluates_apart()) return;
    if (is_evaluated_ == evaluated) return;
    stores_.gathered->end_passes();
    stores_.update->write_model(training_->step.between_steps(), evaluated);
    is_evaluated_ = evaluated;
  }
  // Whether the model's copy has the weights for its use at the engine's end.
  bool shows_at_end() noexcept {
    if (training_ == nullptr || !optimizer_->evaluates_apart()) return true;
    // Other ranks may not make the same call.
    if (is_updating() || std::uncaught_exceptions() > 0) return is_evaluated_;
    try {
      show(true);
    } catch (...) {  // a use of the parameters reports it
      return false;
    }
    return true;
  }

  // Values are about to be read that no update works on.
  void begin_reading() {
    require_no_update();
    stores_.finish_update();
    passes_.enter(Activity::reading_weights);
  }

  // Values are about to be written.
  void begin_writing(const char* call, Activity activity) {
    require_between_steps(call);
    stores_.finish_update();
    show(/*evaluated=*/false);
    passes_.enter(activity);
  }

  void begin_pass() {
    values_.require_one_state();
    show(/*evaluated=*/false);
  }
  void begin_evaluation() {
    require_no_update();
    values_.require_one_state();
    show(/*evaluated=*/true);
  }

  void require_whole_model(const char* call) const {
    require(cut_ == nullptr, "engine.", call,
            ": in a pipeline no rank has the whole model; save its weights and load them without "
            "zinc.mesh.pipe, or call engine.release_to_model() and the model itself");
  }

  EngineConfig config_;
  nn::Model& model_;
  comm::World& whole_;
  comm::World& world_;  // the ranks among which states are sharded
  Context& context_;
  PhaseClock clock_;
  nn::FirstValues first_values_;
  const bool is_clients_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  parallel::SharedModel shared_;
  EightBitProducts products_;
  SparseAttention sparse_;
  ChosenKernels kernels_;
  const RunExample example_;
  const std::unique_ptr<parallel::PipelineCut> cut_;  // null: this rank has all of the model
  const std::set<const autograd::Parameter*> whole_parameters_;  // each updated as a whole
  ShardGroups groups_;
  const PlannedStep step_plan_;
  const StepProgram& program_ = step_plan_.program;
  UpdateRules rules_;
  bool agreed_;
  Stores stores_;
  std::unique_ptr<Lockstep> lockstep_;        // null: nothing is sharded
  const std::unique_ptr<Training> training_;  // null: the engine only computes
  Runner runner_;
  ForwardPasses passes_;
  EngineValues values_;
  bool is_evaluated_ = false;  // show()

 private:
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

  // Empty: the default groups.
  std::vector<optim::ParameterGroup> parameter_groups(EngineOptions& options) {
    const optim::WholeRule* const rule = optimizer_->whole_rule();
    if (!options.parameter_groups.empty() || whole_parameters_.empty() ||
        rule->asked() == optim::WholeRule::Asked::all) {
      return std::move(options.parameter_groups);
    }
    const auto parameters = model_.parameters();
    return optim::make_parameter_groups(
        std::vector<autograd::Parameter*>(parameters.begin(), parameters.end()),
        config_.optimizer.hyper, whole_parameters_, config_.optimizer.matrix_hyper);
  }

  StoreInputs store_inputs(EngineOptions& options) {
    return {.groups = groups_,
            .program = program_,
            .communicator = world_.communicator(),
            .context = context_,
            .weights = first_values_,
            .clock = clock_,
            .states = optimizer_->states(),
            .whole_rule = optimizer_->whole_rule(),
            .signs = optimizer_->sign_reduction(),
            .wire_divisor = wire_divisor(config_.gradient, world_.size()),
            .make_sums = std::move(options.gradient_sums)};
  }

  std::unique_ptr<Training> make_training(EngineOptions& options) {
    if (!program_.policy.trains()) return nullptr;
    auto recorded = make_recorded_passes(config_, world_, *stores_.gradients);
    const WholeStep::Parts parts = step_parts(recorded.get());
    return std::unique_ptr<Training>(
        new Training{.recorded = std::move(recorded),
                     .step = {parts, {config_.schedule, config_.optimizer, run_length(options)}},
                     .after_step = std::move(options.after_step)});
  }

  void begin_training() {
    training_->passes.emplace(StepPasses::Parts{.config = config_,
                                                .model = model_,
                                                .world = whole_,
                                                .cut = cut_.get(),
                                                .program = program_,
                                                .inputs = step_plan_.inputs,
                                                .stores = stores_,
                                                .step = training_->step,
                                                .runner = runner_,
                                                .passes = passes_,
                                                .recorded = training_->recorded.get(),
                                                .clock = clock_});
    world_.communicator().set_reduce_algorithm(config_.gradient.reduce_algorithm ==
                                                       ReduceAlgorithm::native
                                                   ? comm::ReduceAlgorithm::native
                                                   : comm::ReduceAlgorithm::ordered);
  }

  WholeStep::Parts step_parts(RecordedPasses* recorded) {
    return {
        .config = config_,
        .world = world_,
        .sequence = whole_.mesh().sequence,
        .peers = norm_peers(),
        .cut = cut_.get(),
        .groups = groups_,
        .during_backward = program_.policy.update == UpdateTime::during_backward,
        .stores = stores_,
        .rules = rules_,
        .optimizer = *optimizer_,
        .host_decides = is_clients_ || optimizer_->sign_reduction() != nullptr,
        .recorded = recorded != nullptr && optimizer_->has_scalars() ? &recorded->step() : nullptr};
  }

  Runner::Parts runner_parts(EngineOptions& options) {
    std::optional<Runner::Training> training;
    if (training_ != nullptr) {
      training.emplace(Runner::Training{.reduce_order = program_.record.reduce_order,
                                        .gradients = *stores_.gradients,
                                        .step = training_->step,
                                        .update = *stores_.update});
    }
    return {.groups = groups_,
            .program = program_.program,
            .policy = program_.policy,
            .is_dynamic = options.dynamic_model,
            .weights = *stores_.gathered,
            .training = training,
            .lockstep = lockstep_.get(),
            .on_place = std::move(options.on_place)};
  }
};

Engine::Engine(nn::Model& model, const EngineConfig& config, comm::World& world,
               EngineOptions options)
    : impl_(std::make_unique<Impl>(model, config, world, std::move(options))) {}
Engine::~Engine() = default;

Loss Engine::forward(const nn::Batch& batch) {
  StepPasses& passes = *impl_->training("forward").passes;
  impl_->begin_pass();
  const BatchLoss loss = passes.forward(batch);
  return {.sum = loss.sum, .num_targets = loss.num_targets};
}
void Engine::backward(const Loss& loss) {
  StepPasses& passes = *impl_->training("backward").passes;
  impl_->show(/*evaluated=*/false);
  passes.backward({.sum = loss.sum, .num_targets = loss.num_targets});
}
void Engine::run_passes(std::span<const nn::Batch> batches) {
  StepPasses& passes = *impl_->training("run_passes").passes;
  impl_->begin_pass();
  passes.run(batches);
}
StepResult Engine::step() {
  Impl::Training& training = impl_->training("step");
  StepResult result = training.passes->step();
  if (result.outcome != StepOutcome::accumulated && training.after_step) training.after_step();
  return result;
}

Evaluation Engine::evaluate(const nn::Batch& batch) {
  const TracePhase phase(impl_->context_.trace(), "evaluation");
  impl_->begin_evaluation();
  const Tensor sum = impl_->passes_.loss_of(batch);
  double loss = sum.defined() ? sum.item() : 0.0;
  if (impl_->cut_ != nullptr) {
    loss = comm::last_values(*impl_->whole_.pipe(), std::array{loss}).front();
  }
  return {.loss_sum = loss, .num_targets = batch.num_targets};
}
Tensor Engine::next_logits(const Tensor& ids) {
  impl_->require_whole_model("next_logits");
  auto& lm = nn::require_interface<nn::CausalLm>(impl_->model_, "engine.next_logits");
  impl_->begin_evaluation();
  Tensor logits;
  impl_->passes_.evaluate(Activity::generation, Runner::Follows::program,
                          [&] { logits = lm.next_logits(ids); });
  return logits;
}
void Engine::run_prediction(const std::function<void()>& work) {
  impl_->require_whole_model("predict");
  const TracePhase phase(impl_->context_.trace(), "prediction");
  impl_->begin_evaluation();
  impl_->passes_.evaluate(Activity::prediction, Runner::Follows::uses, work);
}

const EngineConfig& Engine::config() const { return impl_->config_; }
nn::Model& Engine::model() { return impl_->model_; }
comm::World& Engine::world() { return impl_->whole_; }
const StepProgram& Engine::step_program() const { return impl_->program_; }
std::string Engine::moment() const {
  return impl_->training_ != nullptr ? impl_->training_->passes->moment() : impl_->passes_.moment();
}
TrainingState Engine::state() const {
  TrainingState state = impl_->training("state").step.state();
  state.optimizer = impl_->optimizer_->name();
  state.apart = impl_->optimizer_->evaluates_apart();
  for (const std::string_view kind : impl_->values_.kinds()) state.kinds.emplace_back(kind);
  return state;
}
double Engine::learning_rate() const {
  return impl_->training("learning_rate").step.learning_rates().lr();
}
void Engine::set_learning_rate(std::optional<double> value) {
  Impl::Training& training = impl_->training("set_learning_rate");
  impl_->require_no_update();
  training.step.learning_rates().set_lr(value);
}
EngineUsage Engine::usage() const {
  EngineUsage usage{.swap = impl_->stores_.swap_traffic(),
                    .own = impl_->values_.own_bytes(),
                    .values_set = impl_->values_.num_set(),
                    .can_hold_own = impl_->values_.can_hold()};
  const Impl::Training* const training = impl_->training_.get();
  if (training == nullptr) return usage;
  usage.swap = usage.swap + training->passes->traffic();
  if (const RecordedPasses* recorded = training->recorded.get(); recorded != nullptr) {
    const RecordedStep& step = training->recorded->step();
    usage.graphs = {.recorded = recorded->num_recorded(),
                    .launched = recorded->num_launched(),
                    .step_parts = step.norm.num_launched() + step.update.num_launched()};
  }
  return usage;
}

void Engine::finish_update() { impl_->stores_.finish_update(); }
Tensor Engine::parameter(std::string_view name) {
  impl_->begin_reading();
  return impl_->values_.read(name);
}
Tensor Engine::evaluated_parameter(std::string_view name) {
  impl_->begin_reading();
  return impl_->values_.read_for_use(name);
}
Tensor Engine::optimizer_state(std::string_view name, std::string_view state) {
  impl_->training("optimizer_state");
  impl_->begin_reading();
  return impl_->values_.read(name, state);
}
void Engine::set_parameter(std::string_view name, const Tensor& values) {
  impl_->begin_writing("set_parameter", Activity::writing_weights);
  impl_->values_.write(name, values);
}
void Engine::edit(const std::vector<std::string>& names,
                  const std::function<void(EditedParameters&)>& change, int modifier) {
  impl_->begin_writing("edit", Activity::reading_weights);
  impl_->values_.edit(names, change, modifier);
}
void Engine::read_own(Own what, const TakeOwn& take, bool hold) {
  if (what == Own::weights_and_states) impl_->training("read_own(Own::weights_and_states)");
  impl_->require_no_update();
  impl_->values_.require_one_state();
  impl_->stores_.finish_own_update();
  impl_->passes_.enter(Activity::reading_weights);
  impl_->values_.read_own(what, take, hold);
}
void Engine::import_state(const StateSource& source, const ImportOptions& options) {
  if (options.optimizer_states || options.counters) {
    impl_->training("import_state (but for {.optimizer_states = false, .counters = false})");
  }
  impl_->begin_writing("import_state", Activity::importing_state);
  impl_->values_.import_state(source, options);
}
void Engine::release_to_model() {
  impl_->begin_writing("release_to_model", Activity::reading_weights);
  impl_->values_.release_to_model();
  impl_->runner_.close();
}
Tensor Engine::gradient(std::string_view name) {
  Impl::Training& training = impl_->training("gradient");
  require(training.passes->has_all_gradients(),
          "engine.gradient: gradients are complete between the last backward() of a step and its "
          "step()");
  return impl_->values_.gradient(name, [&] {
    impl_->passes_.enter(Activity::reducing_gradients);
    const double divisor = training.step.end_gradients();
    impl_->stores_.update->settle_gradients();
    return divisor;
  });
}

Engine::NoSync::NoSync(Engine& engine) : engine_(engine) {
  engine.impl_->training("NoSync").passes->begin_no_sync();
}
Engine::NoSync::~NoSync() { engine_.impl_->training_->passes->end_no_sync(); }

std::vector<Evaluation> gather(Engine& engine, const Evaluation& part) {
  engine.finish_update();
  const std::array<double, 2> values{part.loss_sum, static_cast<double>(part.num_targets)};
  const std::vector<double> all = comm::gather_values(engine.world().shards(), values);
  // Neighbouring ranks with parts of one batch.
  const auto shares = static_cast<size_t>(engine.world().mesh().sequence);
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
