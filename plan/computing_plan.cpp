#include "plan/computing_plan.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/phantom/phantom.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/work_log.h"
#include "data/loader.h"
#include "generate/texts_of_ranks.h"
#include "hub/model.h"
#include "nn/model.h"
#include "plan/phantom_run.h"
#include "zero/engine.h"

namespace zinc::plan {
namespace {

void evaluate(zero::Engine& engine, const hub::ModelConfig& model, const train::Config& config,
              const PlanOptions& options, comm::PhantomLedger& ledger) {
  const comm::MeshPlace ranks = engine.world().data();
  const int64_t rows = engine.config().batch.micro_batch;
  const PhantomData data(rows * ranks.size(), options.longest > 0 ? options.longest : options.seq,
                         batch_fields(options, model));
  const data::EvaluationSet batches(
      data, {.batch = rows,
             .seq_len = options.seq,
             .pad_multiple = options.longest > 0 ? config.pad_multiple() : 0,
             .rank = ranks.rank(),
             .world = ranks.size()});
  engine.evaluate(batches.batch(0));
  ledger.clear();
  engine.evaluate(batches.batch(0));
}

void write(zero::Engine& engine, const PlannedTexts& texts) {
  if (texts.count == 0) return;
  const std::vector<int32_t> prompt(static_cast<size_t>(texts.prompt_tokens), 0);
  generate::write_texts(engine,
                        std::vector<std::vector<int32_t>>(static_cast<size_t>(texts.count), prompt),
                        {.max_tokens = texts.new_tokens, .sampling = {.temperature = 0.0}});
}

}  // namespace

ComputingPlan make_computing_plan(const hub::ModelConfigFile& model_config,
                                  const train::Config& config, const PlanOptions& options,
                                  const PlannedTexts& texts) {
  require(options.world > 0 && options.seq > 0 && options.num_threads > 0,
          "plan: world, seq and threads must be positive");
  ComputingPlan plan{.options = options, .rank = {.rank = options.rank.value_or(0)}};
  const zero::Engine* planned = nullptr;
  const auto on_peak = [&](Tier tier, const MemoryReport& report) {
    if (tier != Tier::device) return;
    plan.rank.at_peak = report;
    plan.rank.peak_moment = planned == nullptr ? "construction" : planned->moment();
  };
  const auto ledger = std::make_shared<comm::PhantomLedger>();
  WorkLog log;
  comm::World world = phantom_world(options, config, ledger, log, on_peak);
  const std::unique_ptr<nn::Model> model = hub::make_model(model_config);
  zero::EngineConfig as_asked = config.engine;
  if (as_asked.batch.sequence == 0) as_asked.batch.sequence = options.seq;
  zero::Engine engine(*model, as_asked, world, {.computes_only = true});
  planned = &engine;
  evaluate(engine, model_config.config, config, options, *ledger);
  plan.rank.step = *ledger;
  write(engine, texts);
  plan.rank.peaks = world.context().allocator().report();
  plan.num_parameters = model->num_parameters();
  return plan;
}

}  // namespace zinc::plan
