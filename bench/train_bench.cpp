#include "bench/train_bench.h"

#include <memory>

#include "bench/ceilings.h"
#include "bench/device_clock.h"
#include "bench/model_products.h"
#include "bench/random_batch.h"
#include "bench/samples.h"
#include "core/error.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "hub/model_config.h"
#include "zero/engine.h"

namespace zinc::bench {
namespace {

// Seconds that the vendor library needs for all products of a step, and their flops.
struct CeilingTime {
  double seconds = 0.0;
  double flops = 0.0;
};

CeilingTime measure_products(const hub::ModelConfig& config, const TrainBenchOptions& options) {
  constexpr int kRuns = 3;
  CeilingTime total;
  const bool on_gpu = Context::current().device().is_cuda();
  DeviceClock clock(Context::current());
  const int64_t m = options.batch * options.seq;
  for (const Product& product : products_of(config)) {
    const std::vector<Ceiling> passes{
        Ceiling::gemm(m, product.n, product.k, options.dtype, false, true),
        Ceiling::gemm(m, product.k, product.n, options.dtype, false, false),
        Ceiling::gemm(product.n, product.k, m, options.dtype, true, false)};
    for (const Ceiling& pass : passes) {
      const std::unique_ptr<Probe> probe =
          on_gpu ? make_cuda_gemm_probe(pass) : make_gemm_probe(pass);
      if (probe == nullptr) return {};
      probe->run();
      std::vector<double> times;
      for (int i = 0; i < kRuns; ++i) {
        times.push_back(clock.seconds_of([&] { probe->run(); }));
      }
      total.seconds += static_cast<double>(product.count) * median(times);
      total.flops += static_cast<double>(product.count) * probe->work_per_run();
    }
  }
  return total;
}

// One model and engine.
struct StageRun {
  StageRun(const hub::ModelConfig& config, const TrainBenchOptions& options, int stage,
           zero::Determinism determinism, comm::World& world)
      : model(hub::make_model(config)) {
    hub::apply_tuning(*model, options.tuning);
    steps.stage = stage;
    steps.determinism = determinism;
    zero::EngineConfig engine_config;
    engine_config.zero.stage = stage;
    engine_config.determinism = determinism;
    engine_config.batch = {.micro_batch = options.batch, .accumulation = options.accumulation};
    engine_config.precision.dtype = options.dtype;
    engine_config.precision.check_overflow = options.dtype == DType::f16;
    engine_config.recompute.every_blocks = options.recompute_every;
    engine = std::make_unique<zero::Engine>(*model, engine_config, world);
  }

  std::unique_ptr<nn::Model> model;
  std::unique_ptr<zero::Engine> engine;
  StageSteps steps;
};

double run_step(StageRun& candidate, comm::World& world, const TrainBenchOptions& options,
                const TrainBenchHooks& hooks, int64_t step) {
  std::vector<nn::Batch> batches;
  const int64_t ranks = world.size();
  for (int64_t i = 0; i < options.accumulation; ++i) {
    const int64_t index = (step * options.accumulation + i) * ranks + world.rank();
    batches.push_back(
        random_batch(index, options.batch, options.seq, candidate.model->vocab_size()));
  }
  const auto start = Clock::now();
  for (const nn::Batch& batch : batches) {
    candidate.engine->backward(candidate.engine->forward(batch));
    candidate.steps.final_loss = candidate.engine->step().loss;
  }
  world.context().compute()->synchronize();
  if (hooks.in_step) hooks.in_step();
  return seconds_since(start);
}

}  // namespace

TrainBenchResult run_train_bench(comm::World& world, const TrainBenchOptions& options,
                                 const TrainBenchHooks& hooks) {
  require(options.steps > 0 && options.batch > 0 && options.seq > 0 && options.accumulation > 0,
          "train bench: steps, batch, seq and accumulation must be positive");
  require(!options.stages.empty() && !options.determinism.empty(),
          "train bench: at least one stage and one determinism are needed");
  const hub::ModelConfigFile config = hub::find_model_config(options.preset);
  std::vector<std::unique_ptr<StageRun>> candidates;
  for (const int stage : options.stages) {
    for (const zero::Determinism determinism : options.determinism) {
      candidates.push_back(
          std::make_unique<StageRun>(config.config, options, stage, determinism, world));
    }
  }

  // A model that is trained in part makes fewer products.
  const auto measure = [&] {
    return options.tuning.is_all() ? measure_products(config.config, options) : CeilingTime{};
  };
  const CeilingTime before = measure();
  for (int64_t step = 0; step <= options.steps; ++step) {
    for (const auto& candidate : candidates) {
      if (hooks.before_step) hooks.before_step();
      const double seconds = run_step(*candidate, world, options, hooks, step);
      if (step == 0) continue;
      candidate->steps.step_seconds.push_back(seconds);
      if (hooks.after_step) hooks.after_step(candidate->steps, seconds);
    }
  }
  const CeilingTime after = measure();

  TrainBenchResult result;
  const double tokens_of_rank =
      static_cast<double>(options.batch * options.seq * options.accumulation);
  for (const auto& candidate : candidates) {
    StageSteps& steps = candidate->steps;
    steps.median_step_seconds = median(steps.step_seconds);
    steps.tokens_per_second = tokens_of_rank * world.size() / steps.median_step_seconds;
    result.stages.push_back(steps);
  }
  result.flops_per_token = candidates.front()->model->flops_per_token(options.seq);
  result.achieved_flops =
      result.flops_per_token * tokens_of_rank / result.stages.front().median_step_seconds;
  if (before.seconds > 0.0) {
    result.gemm_ceiling_flops = (before.flops + after.flops) / (before.seconds + after.seconds);
    result.ratio = result.achieved_flops / result.gemm_ceiling_flops;
  }
  result.peak_bytes = world.context().allocator().report().at(Tier::device).peak;
  return result;
}

std::string json_of(const TrainBenchOptions& options, const TrainBenchResult& result) {
  files::json::Writer json(2);
  json.begin_object();
  json.member("preset", options.preset);
  json.member("dtype", name_of(options.dtype));
  json.member("batch", options.batch);
  json.member("seq", options.seq);
  json.member("accumulation", options.accumulation);
  json.member("flops_per_token", result.flops_per_token);
  json.member("flops_formula", "6 x multiplied weights + 6 L H D T (causal)");
  json.member("achieved_flops", result.achieved_flops);
  json.member("gemm_ceiling_flops", result.gemm_ceiling_flops);
  json.member("ratio", result.ratio);
  json.member("peak_bytes", result.peak_bytes);
  json.key("stages").begin_array();
  for (const StageSteps& stage : result.stages) {
    json.begin_object();
    json.member("stage", static_cast<int64_t>(stage.stage));
    json.member("determinism", zero::name_of(stage.determinism));
    json.member("tokens_per_second", stage.tokens_per_second);
    json.member("median_step_seconds", stage.median_step_seconds);
    json.key("step_seconds").begin_array();
    for (const double seconds : stage.step_seconds) json.value(seconds);
    json.end_array();
    json.member("final_loss", stage.final_loss);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

}  // namespace zinc::bench
