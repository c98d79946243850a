// Plans of configurations that nobody chose: drawn by seed, run for a few steps, and compared with
// what every rank took on every tier. Saves, evaluations and skipped steps lie between the steps.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <bit>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/local/local.h"
#include "core/philox.h"
#include "hub/adapter.h"
#include "hub/family.h"
#include "hub/model.h"
#include "nn/models/bert_config.h"
#include "nn/models/bloom_config.h"
#include "nn/models/encoder_classifier.h"
#include "nn/models/gpt2_config.h"
#include "nn/models/llama_config.h"
#include "plan/plan.h"
#include "tests/core/draw.h"
#include "tests/files/scratch_folder.h"
#include "train/checkpoint/save_checkpoint.h"
#include "train/trainer.h"
#include "train/weights/save_model.h"

namespace zinc::plan {
namespace random_plan_test {

using test::Draw;

constexpr int64_t kDrawnSeq = 20;
constexpr int64_t kShorter = 13;

// Tokens of samples: all kDrawnSeq; two of three fewer; all kShorter. Where they are not all
// kDrawnSeq, a batch is as long as its longest sample.
enum class Rows : uint8_t { full, unequal, shorter };
std::string_view name_of(Rows rows) {
  return rows == Rows::full ? "full" : rows == Rows::unequal ? "unequal" : "shorter";
}

class CountedTokens final : public data::Dataset {
 public:
  CountedTokens(data::BatchFields fields, Rows rows) : fields_(std::move(fields)), rows_(rows) {}
  int64_t num_samples() const override { return 512; }
  data::BatchFields fields() const override { return fields_; }
  void read(int64_t index, data::Sample& sample) const override {
    for (int64_t i = 0; i < length_of(index); ++i) {
      sample.tokens.push_back(static_cast<int32_t>((index * 5 + i) % 53));
      sample.labels.push_back(static_cast<int32_t>((index * 5 + i + 1) % 53));
      if (fields_.document_starts) sample.document_starts.push_back(i < 7 ? 0 : 7);
    }
    if (fields_.labels == data::LabelsOf::row)
      sample.labels.assign(1, static_cast<int32_t>(index % 3));
  }
  std::string describe() const override { return "counted tokens"; }

 private:
  int64_t length_of(int64_t index) const {
    if (rows_ == Rows::unequal && index % 3 > 0) return 5 + index % 12;
    return rows_ == Rows::shorter ? kShorter : kDrawnSeq;
  }

  data::BatchFields fields_;
  const Rows rows_;
};

struct DrawnRun {
  hub::ModelConfigFile model;
  data::BatchFields fields{};
  train::Config config;
  int world = 1;
  int64_t eval_every = 0;
  int64_t save_every = 0;
  bool evaluates = false;
  bool saves = false;
  Rows rows = Rows::full;
  int64_t steps = 4;
  int64_t evaluation_samples = 1;
  std::string words;
};

hub::ModelConfigFile draw_model(Draw& draw, int64_t layers) {
  const int64_t hidden = draw.one_of<int64_t>("hidden", {32, 48, 96});
  const int64_t vocabulary = draw.one_of<int64_t>("vocabulary", {53, 700});
  const auto family = draw.one_of<std::string_view>(
      "family", {"gpt2", "gpt2", "llama", "llama", "bloom", "encoder_classifier", "roberta"});
  if (family == "bloom") {
    nn::BloomConfig config;
    config.vocab_size = vocabulary;
    config.max_positions = 32;
    config.hidden_size = hidden;
    config.num_layers = layers;
    config.num_heads = 4;
    return {.config = config};
  }
  if (family == "encoder_classifier") {
    nn::EncoderClassifierConfig config;
    config.vocab_size = vocabulary;
    config.max_positions = 32;
    config.hidden_size = hidden;
    config.intermediate_size = 2 * hidden;
    config.num_layers = layers;
    config.num_heads = 4;
    config.num_classes = 3;
    return {.config = config};
  }
  if (family == "roberta") {
    nn::BertConfig config;
    config.kind = nn::BertKind::roberta;
    config.task = nn::EncoderTask::sequence_classification;
    config.num_classes = 3;
    config.vocab_size = vocabulary;
    config.max_positions = 34;
    config.type_vocab_size = 1;
    config.hidden_size = hidden;
    config.intermediate_size = 2 * hidden;
    config.num_layers = layers;
    config.num_heads = 4;
    return {.config = config};
  }
  if (family == "llama") {
    nn::LlamaConfig config;
    config.vocab_size = vocabulary;
    config.max_positions = 32;
    config.hidden_size = hidden;
    config.intermediate_size = 3 * hidden;
    config.num_layers = layers;
    config.num_heads = 8;
    config.num_kv_heads = 4;
    return {.config = config};
  }
  nn::Gpt2Config config;
  config.vocab_size = vocabulary;
  config.max_positions = 32;
  config.hidden_size = hidden;
  config.num_layers = layers;
  config.num_heads = 4;
  return {.config = config};
}

void draw_precision(Draw& draw, zero::EngineConfig& engine) {
  engine.precision.dtype = draw.named("dtype", {DType::f32, DType::bf16, DType::bf16, DType::f16});
  engine.gradient.clipping = draw.one_of("clipping", {0.0, 1.0});
  engine.precision.check_overflow =
      engine.precision.dtype == DType::f16 || draw.flip("check_overflow");
  if (engine.precision.dtype != DType::f16) return;
  // At 2^60 every step is skipped, at 2^16 some are. A run of the first kind learns nothing, which
  // is an error otherwise.
  engine.precision.allow_nonfinite_loss = true;
  engine.precision.loss_scale = {.dynamic = true,
                                 .initial_scale_power = draw.one_of("scale", {0, 16, 60})};
}

void draw_bounds(Draw& draw, zero::ZeroConfig& zero) {
  zero.reduce_bucket_size = draw.one_of<int64_t>("reduce_bucket", {1, 9000, 500'000'000});
  zero.allgather_bucket_size = draw.one_of<int64_t>("allgather_bucket", {1, 9000, 500'000'000});
  zero.overlap_comm = draw.flip("overlap_comm");
  if (zero.stage < 3) return;
  zero.prefetch_bucket_size = draw.one_of<int64_t>("prefetch", {0, 30'000, 50'000'000});
  zero.param_persistence_threshold = draw.one_of<int64_t>("persistence", {0, 100, 100'000});
  zero.resident_memory = draw.one_of<int64_t>("resident", {0, 60'000, 1'000'000'000});
  zero.max_live_parameters = draw.one_of<int64_t>("live", {0, 60'000, 1'000'000'000});
  zero.max_reuse_distance = draw.one_of<int64_t>("reuse", {0, 60'000, 1'000'000'000});
}

void draw_tiers(Draw& draw, zero::EngineConfig& engine) {
  using zero::OffloadDevice;
  const auto devices = {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme};
  zero::ZeroConfig& zero = engine.zero;
  if (zero.stage >= 1) {
    zero::OffloadConfig& states = zero.offload_optimizer;
    states.device = draw.named<OffloadDevice>("states", devices);
    states.nvme_path = testing::TempDir();
    states.pipeline_read = draw.flip("pipeline_read");
    states.pipeline_write = draw.flip("pipeline_write");
    zero.sub_group_size = draw.one_of<int64_t>("sub_group", {0, 2048, 5000, 50'000});
    if (states.device == OffloadDevice::cpu) {
      states.ratio = draw.one_of("ratio", {1.0, 1.0, 0.4, 0.0});
      engine.offload_step =
          draw.named("offload_step", {zero::OffloadStep::host, zero::OffloadStep::device});
    }
    if (draw.flip("overlap_update_given")) engine.overlap_update = draw.flip("overlap_update");
  }
  if (zero.stage == 3) {
    zero::OffloadConfig& parameters = zero.offload_param;
    parameters.device = draw.named<OffloadDevice>("parameters", devices);
    parameters.nvme_path = testing::TempDir();
    parameters.buffer_count = draw.one_of<int64_t>("buffers", {1, 2, 5});
    parameters.buffer_size = draw.one_of<int64_t>("buffer_size", {2048, 9000, 100'000'000});
    parameters.max_in_cpu = draw.one_of<int64_t>("in_cpu", {0, 20'000, 1'000'000'000});
  }
}

void draw_passes(Draw& draw, int world, zero::EngineConfig& engine) {
  using zero::OffloadDevice;
  if (draw.one_of("vertical", {false, false, true})) {
    engine.pass_order = zero::PassOrder::vertical;
  }
  if (std::has_single_bit(static_cast<unsigned>(world)) &&
      draw.one_of("world_bits", {false, false, true})) {
    engine.determinism = zero::Determinism::world;
  }
  const bool open = engine.zero.stage <= 1 && engine.pass_order == zero::PassOrder::horizontal &&
                    engine.determinism == zero::Determinism::run;
  if (open && draw.flip("micro_step")) {
    engine.gradient.reduce_schedule = zero::ReduceSchedule::micro_step;
  }
  const bool partial_sums = engine.determinism == zero::Determinism::world &&
                            engine.batch.accumulation != engine.batches_together();
  if (engine.zero.offload_optimizer.device == OffloadDevice::nvme && !partial_sums &&
      draw.flip("gradients_on_nvme")) {
    engine.gradient_offload = zero::GradientOffload::nvme;
  } else if (draw.one_of("sums_on_device", {false, false, true})) {
    engine.gradient_offload = zero::GradientOffload::device;
  }
  zero::RecomputeConfig& recompute = engine.recompute;
  recompute.every_blocks = draw.one_of<int64_t>("recompute", {0, 1, 2});
  recompute.selective = draw.flip("selective");
  if (!recompute.is_on()) return;
  recompute.contiguous_memory_optimization = draw.flip("side_by_side");
  recompute.partition_activations = draw.flip("parts_of_inputs");
  const auto on =
      draw.named("inputs", {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme});
  recompute.cpu_checkpointing = on == OffloadDevice::cpu;
  if (on != OffloadDevice::nvme) return;
  recompute.offload = {.device = on,
                       .nvme_path = testing::TempDir(),
                       .buffer_count = draw.one_of<int64_t>("input_buffers", {1, 2, 4})};
}

// Where nothing drawn before stands against it.
void draw_pipeline(Draw& draw, int64_t layers, DrawnRun& run) {
  zero::EngineConfig& engine = run.config.engine;
  const bool may = run.world / run.config.mesh.ranks_per_batch() % 2 == 0 &&
                   engine.zero.stage <= 2 && engine.pass_order == zero::PassOrder::horizontal &&
                   engine.recompute.inputs_on() == zero::OffloadDevice::none &&
                   !engine.recompute.contiguous_memory_optimization &&
                   engine.zero.offload_optimizer.device == zero::OffloadDevice::none;
  if (!may) return;
  run.config.mesh.pipe = draw.one_of("pipe", {1, 2});
  if (run.config.mesh.pipe == 1) return;
  using parallel::PipelineSchedule;
  const bool may_interleave =
      engine.batch.accumulation % run.config.mesh.pipe == 0 && layers >= 2 * run.config.mesh.pipe;
  if (may_interleave) engine.pipeline.interleave = draw.one_of("pipeline_interleave", {1, 2});
  if (engine.pipeline.interleave > 1) return;
  engine.pipeline.schedule = draw.named(
      "pipeline_schedule",
      {PipelineSchedule::one_forward_one_backward, PipelineSchedule::gpipe,
       engine.recompute.is_on() ? PipelineSchedule::gpipe : PipelineSchedule::zero_bubble});
}

// Beside AdamW, whose moments may be drawn narrow. `whole`: every rank has whole layers.
void draw_rule(std::string_view rule, bool whole, zero::EngineConfig& engine) {
  using optim::OptimizerKind;
  optim::OptimizerConfig& optimizer = engine.optimizer;
  if (rule == "Muon" && whole) optimizer.kind = OptimizerKind::muon;
  if (rule == "LAMB" && whole) optimizer.kind = OptimizerKind::lamb;
  if (rule == "Lion") optimizer.kind = OptimizerKind::lion;
  if (rule == "Adagrad") optimizer.kind = OptimizerKind::adagrad;
  if (optimizer.moments == optim::Moments::bf16) return;
  if (rule == "SGD") optimizer.kind = OptimizerKind::sgd;
  if (rule == "Adafactor" && whole) optimizer.kind = OptimizerKind::adafactor;
  if (rule == "Adam8bit" && engine.determinism != zero::Determinism::mesh) {
    optimizer.kind = OptimizerKind::adam8bit;
  }
  if (rule == "ScheduleFreeAdamW") optimizer.kind = OptimizerKind::schedule_free;
  optimizer.amsgrad = rule == "AMSGrad";
}

// bf16 weights without master weights, where they may be.
void draw_weights(Draw& draw, zero::EngineConfig& engine) {
  if (engine.precision.dtype != DType::bf16) return;
  const bool narrow = draw.one_of("narrow_weights", {false, false, true});
  const optim::OptimizerKind rule = engine.optimizer.kind;
  engine.optimizer.narrow_weights = narrow && rule != optim::OptimizerKind::adam8bit &&
                                    rule != optim::OptimizerKind::schedule_free;
}

bool may_send_signs(const train::Config& config) {
  const zero::EngineConfig& engine = config.engine;
  return config.mesh.is_flat() && engine.zero.stage < 3 &&
         engine.determinism == zero::Determinism::run &&
         engine.pass_order == zero::PassOrder::horizontal &&
         engine.gradient.reduce_schedule != zero::ReduceSchedule::micro_step &&
         !engine.gradient.accumulation_dtype && engine.optimizer.moments == optim::Moments::f32;
}

DrawnRun draw_run(uint64_t seed) {
  Draw draw(seed);
  DrawnRun run;
  const auto layers = draw.one_of<int64_t>("layers", {2, 3, 4});
  run.model = draw_model(draw, layers);
  run.world = draw.one_of("world", {1, 2, 3, 4});
  const bool goes_on = objective(run.model.config).kind == hub::Objective::next_tokens;
  if (run.world % 2 == 0 && goes_on) run.config.mesh.tensor = draw.one_of("tensor", {1, 2});
  if (run.world / run.config.mesh.tensor % 2 == 0 && goes_on) {
    run.config.mesh.sequence = draw.one_of("sequence", {1, 2});
  }
  const bool may_pack = goes_on && run.config.mesh.sequence == 1;
  run.fields = fields_of(run.model.config, may_pack && draw.flip("packed"));
  if (draw.one_of("adapters", {false, false, true})) {
    run.model.tuning.lora = nn::LoraOptions{.rank = 4, .dropout = 0.1, .targets = {"all-linear"}};
  }
  run.config.seed = 5;
  zero::EngineConfig& engine = run.config.engine;
  engine.batch = {.micro_batch = draw.one_of<int64_t>("batch", {1, 2, 3}),
                  .accumulation = draw.one_of<int64_t>("accumulation", {1, 2, 3})};
  engine.zero.stage = draw.one_of("stage", {0, 1, 2, 3, 3});
  draw_precision(draw, engine);
  draw_bounds(draw, engine.zero);
  draw_tiers(draw, engine);
  draw_passes(draw, run.world, engine);
  if (goes_on) draw_pipeline(draw, layers, run);
  if (draw.one_of("narrow_moments", {false, false, true})) {
    engine.optimizer.moments = optim::Moments::bf16;
  }
  if (engine.precision.dtype == DType::bf16 && engine.determinism == zero::Determinism::run) {
    engine.fp8 = draw.one_of("fp8", {false, false, true});
  }
  engine.narrow_logits = draw.one_of("narrow_logits", {false, false, true});
  if (run.config.mesh.sequence > 1) {
    engine.sequence_exchange = draw.named(
        "sequence_exchange",
        {nn::SequenceExchange::heads, nn::SequenceExchange::keys, nn::SequenceExchange::ring});
  }
  if (run.config.mesh.tensor > 1 && !engine.recompute.partition_activations) {
    engine.tensor_sequence_parallel = draw.flip("tensor_sequence_parallel");
  }
  const bool may_fix_slices = engine.determinism == zero::Determinism::world &&
                              run.config.mesh.sequence == 1 && !engine.tensor_sequence_parallel;
  if (may_fix_slices && draw.flip("fixed_slices")) engine.determinism = zero::Determinism::mesh;
  if (draw.one_of("wire_given", {false, false, true})) {
    engine.gradient.communication_dtype = draw.named("wire", {DType::f32, DType::bf16, DType::f16});
  }
  run.steps = draw.one_of<int64_t>("steps", {4, 5});
  run.evaluates = draw.flip("evaluates");
  run.saves = draw.flip("saves");
  if (run.evaluates) run.eval_every = draw.one_of<int64_t>("eval_every", {0, 1, 2, 3});
  if (run.saves) run.save_every = draw.one_of<int64_t>("save_every", {0, 1, 2, 3});
  if (run.saves) run.config.checkpoint.every = draw.one_of<int64_t>("checkpoint_every", {0, 1, 3});
  run.config.checkpoint.asynchronous = draw.flip("asynchronous");
  run.evaluation_samples = draw.one_of<int64_t>("evaluation_samples", {1, 7, 20});
  run.rows = draw.named("rows", {Rows::full, Rows::full, Rows::unequal, Rows::shorter});
  const auto rule = draw.one_of<std::string_view>(
      "rule", {"AdamW", "AdamW", "Adam8bit", "SGD", "Lion", "Adagrad", "AMSGrad", "Muon", "LAMB",
               "Adafactor", "ScheduleFreeAdamW", "OneBitAdam"});
  draw_rule(rule, run.config.mesh.tensor == 1, engine);
  engine.optimizer.one_bit.freeze_step = draw.one_of<int64_t>("freeze_step", {1, 2, 3});
  if (rule == "OneBitAdam" && may_send_signs(run.config)) {
    engine.optimizer.kind = optim::OptimizerKind::one_bit_adam;
  }
  draw_weights(draw, engine);
  run.words = fmt::format("seed {}:{}", seed, draw.words());
  return run;
}

// By rank.
std::vector<MemoryReport> memory_of(const DrawnRun& run) {
  std::vector<MemoryReport> ranks(static_cast<size_t>(run.world));
  const CountedTokens data(run.fields, run.rows);
  const int64_t pad_multiple = run.rows == Rows::full ? 0 : run.config.pad_multiple();
  const int64_t micro_batch = run.config.engine.batch.micro_batch;
  const files::ScratchFolder folder;
  comm::run_local_ranks(run.world, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    comm::RankSettings settings = world.settings();
    settings.mesh = run.config.mesh;
    world.configure(std::move(settings));
    const auto model = hub::make_model(run.model);
    data::Loader loader(data, {.micro_batch = micro_batch,
                               .seq_len = kDrawnSeq,
                               .pad_multiple = pad_multiple,
                               .seed = 5,
                               .rank = world.data().rank(),
                               .world = world.data().size(),
                               .prefetch_batches = 0});
    zero::EngineConfig as_trained = run.config.engine;  // as Run::make_engine() has it
    as_trained.batch.sequence = kDrawnSeq;
    zero::EngineOptions engine_options{.total_steps = run.steps};
    engine_options.example = [&loader] { return loader.example(); };
    zero::Engine engine(*model, as_trained, world, std::move(engine_options));
    std::optional<train::CheckpointSaver> saver;
    if (run.saves) saver.emplace(engine, folder.path());
    const data::EvaluationSet evaluation(data, {.batch = micro_batch,
                                                .seq_len = kDrawnSeq,
                                                .pad_multiple = pad_multiple,
                                                .max_samples = run.evaluation_samples,
                                                .rank = world.data().rank(),
                                                .world = world.data().size()});
    const train::TrainingOptions options{
        .steps = run.steps, .eval_every = run.eval_every, .export_every = run.save_every};
    train::TrainerParts parts;
    if (run.saves) {
      parts.save = [&](const std::string&) {
        engine.read_own(zero::Engine::Own::weights_and_states, [](const zero::OwnPiece&) {});
        engine.read_own(zero::Engine::Own::weights, [](const zero::OwnPiece&) {});
        if (run.model.tuning.has_adapters()) train::visit_adapter(engine, {});
      };
    }
    parts.checkpoint_every = run.config.checkpoint.every;
    parts.checkpoint = [&](bool last) {
      if (saver->is_pending()) saver->finish();
      saver->begin({}, {}, run.config.saves_beside() && !last);
      if (last) saver->finish();
    };
    train::Trainer trainer(engine, loader, run.evaluates ? &evaluation : nullptr, {}, nullptr,
                           options, parts);
    trainer.run();
    ranks[static_cast<size_t>(world.rank())] = world.context().allocator().report();
  });
  return ranks;
}

void expect_plan_is_the_peak(const DrawnRun& run) {
  SCOPED_TRACE(run.words);
  PlanOptions options{.world = run.world,
                      .seq = kDrawnSeq,
                      .longest = run.rows == Rows::shorter ? kShorter : 0,
                      .fields = run.fields,
                      .backend = run.world == 1 ? "single" : "local",
                      .evaluate = run.evaluates,
                      .save = run.saves,
                      .save_frozen = run.config.mesh.tensor == 1};  // else in vain
  const Plan plan = make_plan(run.model, run.config, options);
  const std::vector<MemoryReport> ranks = memory_of(run);
  // The plan is that of the fullest rank: ranks own matrices of other shapes.
  const bool has_owners = (run.config.engine.optimizer.kind == optim::OptimizerKind::muon ||
                           run.config.engine.optimizer.kind == optim::OptimizerKind::adafactor) &&
                          run.world > 1;
  int64_t most_on_device = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    // Where a vocabulary does not divide, later slices are smaller.
    const comm::Mesh& mesh = run.config.mesh;
    // A later rank may have smaller tiles of a small adapter's states in swap space.
    const bool has_smaller_tiles =
        run.model.tuning.has_adapters() && rank > 0 &&
        run.config.engine.zero.offload_optimizer.device == zero::OffloadDevice::nvme;
    const bool is_fullest = mesh.tensor_of(static_cast<int>(rank)) == 0 && !has_smaller_tiles;
    RankPlan planned = mesh.pipe == 1
                           ? plan.fullest
                           : plan.pipe[static_cast<size_t>(mesh.pipe_of(static_cast<int>(rank)))];
    // Chunks of a sequence see fewer keys the nearer they are to its middle.
    const bool has_chunks = nn::keeps_queries(run.config.engine.sequence_exchange);
    if (has_chunks && mesh.sequence_of(static_cast<int>(rank)) != 0) {
      options.rank = static_cast<int>(rank);
      const int64_t most = planned.peaks.at(Tier::device).peak;
      planned = make_plan(run.model, run.config, options).fullest;
      EXPECT_LE(planned.peaks.at(Tier::device).peak, most);
    }
    most_on_device = std::max(most_on_device, ranks[rank].at(Tier::device).peak);
    for (int t = 0; t < kNumTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      const bool may_be_less = has_owners && tier == Tier::device;
      // The longest sequences need not come when all else is there, except in what is kept for
      // them.
      if (is_fullest && !may_be_less && (run.rows != Rows::unequal || tier == Tier::nvme)) {
        EXPECT_EQ(planned.peaks.at(tier).peak, ranks[rank].at(tier).peak)
            << name_of(tier) << " of rank " << rank;
      } else {
        EXPECT_GE(planned.peaks.at(tier).peak, ranks[rank].at(tier).peak)
            << name_of(tier) << " of rank " << rank;
      }
    }
  }
  if (has_owners && run.rows != Rows::unequal && run.config.mesh.is_flat()) {
    EXPECT_EQ(plan.fullest.peaks.at(Tier::device).peak, most_on_device);
  }
}

// With states on NVMe; nothing else is out of the ordinary.
DrawnRun swapped_states(int stage, int world, DType dtype) {
  nn::Gpt2Config model;
  model.vocab_size = 700;
  model.max_positions = 32;
  model.hidden_size = 96;
  model.num_layers = 3;
  model.num_heads = 4;
  DrawnRun run{.model = {.config = model}, .world = world};
  zero::EngineConfig& engine = run.config.engine;
  run.config.seed = 5;
  engine.zero.stage = stage;
  engine.precision.dtype = dtype;
  engine.precision.check_overflow = dtype == DType::f16;
  engine.zero.offload_optimizer = {.device = zero::OffloadDevice::nvme,
                                   .nvme_path = testing::TempDir(),
                                   .pipeline_read = true,
                                   .pipeline_write = true};
  return run;
}

TEST(PlanOfSwappedStates, IsThePeakWhereEveryStepIsSkipped) {
  DrawnRun run = swapped_states(2, 2, DType::f16);
  run.config.engine.precision.loss_scale = {.dynamic = true, .initial_scale_power = 60};
  run.config.engine.precision.allow_nonfinite_loss = true;  // nothing is learned, which is an error
  expect_plan_is_the_peak(run);
}

TEST(PlanOfSwappedStates, IsThePeakOfEveryRankWhereRanksHoldUnlikeParts) {
  DrawnRun run = swapped_states(1, 4, DType::bf16);
  run.config.engine.zero.sub_group_size = 50'000;
  run.config.engine.recompute.every_blocks = 1;
  run.saves = true;
  expect_plan_is_the_peak(run);
}

TEST(PlanOfSwappedStates, IsThePeakWithSavesAndEvaluationsBetweenSteps) {
  for (const bool evaluates : {false, true}) {
    DrawnRun run = swapped_states(2, 1, DType::bf16);
    run.saves = true;
    run.save_every = 2;
    run.evaluates = evaluates;
    run.eval_every = evaluates ? 1 : 0;
    expect_plan_is_the_peak(run);
  }
}

TEST(RandomPlan, IsThePeakOfEveryRankOnEveryTier) {
  for (uint64_t seed = 1; seed <= 20; ++seed) expect_plan_is_the_peak(draw_run(seed));
}

// What is used is made from weights and states, with memory of its own.
TEST(RandomPlan, IsThePeakWhereWeightsForUseAreAnAverage) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    DrawnRun run = draw_run(seed);
    optim::OptimizerConfig& optimizer = run.config.engine.optimizer;
    optimizer = {.kind = optim::OptimizerKind::schedule_free, .hyper = optimizer.hyper};
    run.evaluates = run.saves = true;
    run.words += ", averages, evaluates, saves";
    expect_plan_is_the_peak(run);
  }
}

TEST(RandomPlan, IsThePeakWhereGradientsTravelAsSigns) {
  int tried = 0;
  for (uint64_t seed = 1; tried < 16; ++seed) {
    DrawnRun run = draw_run(seed);
    if (!may_send_signs(run.config)) continue;
    ++tried;
    optim::OptimizerConfig& optimizer = run.config.engine.optimizer;
    optimizer = {.kind = optim::OptimizerKind::one_bit_adam,
                 .hyper = optimizer.hyper,
                 .one_bit = {.freeze_step = optimizer.one_bit.freeze_step,
                             .parameter_scales = seed % 2 == 0}};
    run.words += ", signs";
    expect_plan_is_the_peak(run);
  }
}

// By tens.
class RandomPlanSlow : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomPlanSlow, IsThePeakOfEveryRankOnEveryTier) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    expect_plan_is_the_peak(draw_run(10 * GetParam() + seed));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomPlanSlow, testing::Range<uint64_t>(0, 20));

}  // namespace random_plan_test
}  // namespace zinc::plan
