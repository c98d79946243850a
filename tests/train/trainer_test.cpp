#include "train/trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>

#include "comm/local/local.h"
#include "core/error.h"
#include "nn/models/gpt2.h"
#include "tests/offload/swap_folder.h"

namespace zinc::train {
namespace trainer_test {

// Sequences of a short cycle: easy to learn.
class Cycle : public Dataset {
 public:
  int64_t num_samples() const override { return 64; }
  void read(int64_t index, Sample& sample) const override {
    for (int64_t i = 0; i < 8; ++i) {
      sample.tokens.push_back(static_cast<int32_t>((index + i) % 5));
      sample.labels.push_back(static_cast<int32_t>((index + i + 1) % 5));
    }
  }
  std::string describe() const override { return "cycle"; }
};

class Recorder : public TrainerObserver {
 public:
  void on_step(const StepMetrics& metrics, const Progress&) override { steps.push_back(metrics); }
  void on_evaluating(const EvaluationProgress& progress) override {
    evaluating.push_back(progress);
    if (told) told();
  }
  void on_evaluation(int64_t, double val_loss, bool best) override {
    evaluations.push_back(val_loss);
    bests.push_back(best);
  }
  std::vector<EvaluationProgress> evaluating;
  std::vector<bool> bests;
  std::function<void()> told;
  std::vector<StepMetrics> steps;
  std::vector<double> evaluations;
};

struct Ran {
  TrainResult result;
  Recorder recorder;
  std::vector<std::string> saved;  // "started", then names
  std::string error;
};

using Prepare = std::function<void(zero::EngineConfig&, Recorder&)>;

Ran run(int world_size, int64_t micro_batch, TrainerOptions options, double lr = 1e-2,
        const Prepare& prepare = {}) {
  Ran ran;
  const Cycle dataset;
  comm::run_local_ranks(world_size, {.seed = 1, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2Config config;
    config.vocab_size = 5;
    config.max_positions = 8;
    config.hidden_size = 16;
    config.num_layers = 1;
    config.num_heads = 2;
    nn::Gpt2 model(config);
    zero::EngineConfig engine_config;
    engine_config.batch.micro_batch = micro_batch;
    engine_config.optimizer.hyper.lr = lr;
    Recorder recorder;
    if (prepare) prepare(engine_config, recorder);
    zero::Engine engine(model, engine_config, world);
    Loader loader(
        dataset,
        {.micro_batch = micro_batch, .seq_len = 8, .rank = world.rank(), .world = world.size()});
    const EvaluationSet evaluation(
        dataset, {.batch = 3, .seq_len = 8, .rank = world.rank(), .world = world.size()});
    TrainerOptions mine = options;
    std::vector<std::string> saved;
    mine.started = [&] {
      EXPECT_TRUE(recorder.steps.empty());
      saved.push_back("started");
    };
    mine.save = [&saved](const std::string& name) { saved.push_back(name); };
    Trainer trainer(engine, loader, &evaluation, {}, &recorder, mine);
    TrainResult result;
    std::string error;
    try {
      result = trainer.run();
    } catch (const NumericsError& numerics) {
      error = numerics.what();
    }
    if (world.rank() != 0) return;
    ran.error = error;
    ran.result = result;
    ran.recorder = recorder;
    ran.saved = saved;
  });
  return ran;
}

// Where the next forward pass would end the update, there is none after the last step.
TEST(Trainer, TheLastUpdateEndsWithTheRun) {
  const Cycle dataset;
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 1, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2Config config;
    config.vocab_size = 5;
    config.max_positions = 8;
    config.hidden_size = 16;
    config.num_layers = 1;
    config.num_heads = 2;
    nn::Gpt2 model(config);
    zero::EngineConfig engine_config;
    engine_config.zero.stage = 1;
    engine_config.zero.offload_optimizer = {.device = zero::OffloadDevice::nvme,
                                            .nvme_path = folder.path()};
    zero::Engine engine(model, engine_config, world);
    Loader loader(dataset, {.micro_batch = 1, .seq_len = 8, .rank = 0, .world = 1});
    Trainer(engine, loader, nullptr, {}, nullptr, {.steps = 1}).run();
    const MemoryReport report = world.context().allocator().report();
    EXPECT_GT(report.at(Tier::pinned_host, Label::gradients).peak, 0);
    EXPECT_EQ(report.at(Tier::pinned_host, Label::gradients).live, 0);
  });
}

TEST(Trainer, LossFallsAndEveryFigureIsThere) {
  const Ran ran = run(1, 4, {.steps = 60, .eval_every = 20, .export_every = 25});
  ASSERT_EQ(ran.recorder.steps.size(), 60u);
  EXPECT_LT(ran.recorder.steps.back().loss, 0.2 * ran.recorder.steps.front().loss);
  EXPECT_EQ(ran.recorder.evaluations.size(), 3u);
  EXPECT_EQ(ran.result.val_loss, ran.recorder.evaluations.back());
  EXPECT_EQ(ran.recorder.steps[19].val_loss, ran.recorder.evaluations[0]);
  for (size_t i = 0; i < ran.recorder.steps.size(); ++i) {
    const StepMetrics& metrics = ran.recorder.steps[i];
    EXPECT_EQ(metrics.step, static_cast<int64_t>(i + 1));
    EXPECT_EQ(metrics.tokens, 4 * 8);
    EXPECT_EQ(metrics.samples, static_cast<int64_t>(4 * (i + 1)));
    EXPECT_GT(metrics.seconds, 0.0);
    EXPECT_GT(metrics.memory.at(Tier::device).peak, 0);
  }
  const std::vector<std::string> names{"started",     "best",  "step-000025", "best",
                                       "step-000050", "final", "best"};
  EXPECT_EQ(ran.saved, names);
}

// A learning rate of zero leaves the model as it was initialised, whatever the world trained on.
TEST(Trainer, EvaluationIsTheSameFigureInEveryWorld) {
  const auto evaluate = [](int world) { return *run(world, 1, {.steps = 1}, 0.0).result.val_loss; };
  const double alone = evaluate(1);
  EXPECT_EQ(evaluate(2), alone);
  EXPECT_EQ(evaluate(3), alone);
}

TEST(Trainer, AStopEndsAfterTheStepUnderWayOnAllRanks) {
  std::atomic<bool> stop{true};
  const Ran ran = run(2, 2, {.steps = 50, .stop = &stop});
  EXPECT_TRUE(ran.result.stopped);
  EXPECT_EQ(ran.result.steps, 1);
  EXPECT_EQ(ran.saved, (std::vector<std::string>{"started", "final"}));
}

TEST(Trainer, AStopEndsAnEvaluationAfterItsBatch_WithWeightsSaved) {
  std::atomic<bool> stop{false};
  const auto stop_in_the_third_round = [&](zero::EngineConfig&, Recorder& recorder) {
    recorder.told = [&] {
      if (recorder.evaluating.size() == 3) stop = true;
    };
  };
  // At the end: weights are there before.
  const Ran last = run(1, 2, {.steps = 4, .stop = &stop}, 1e-2, stop_in_the_third_round);
  EXPECT_FALSE(last.result.stopped);
  EXPECT_TRUE(last.result.evaluation_stopped);
  EXPECT_FALSE(last.result.val_loss.has_value());
  EXPECT_EQ(last.saved, (std::vector<std::string>{"started", "final"}));
  ASSERT_EQ(last.recorder.evaluating.size(), 3u);  // two of 22 batches were done
  EXPECT_EQ(last.recorder.evaluating.back().batches, 2);
  EXPECT_EQ(last.recorder.evaluating.back().total_batches, 22);
  EXPECT_EQ(last.recorder.steps.size(), 4u);
  stop = false;
  const Ran middle =
      run(1, 2, {.steps = 50, .eval_every = 2, .stop = &stop}, 1e-2, stop_in_the_third_round);
  EXPECT_TRUE(middle.result.stopped);
  EXPECT_EQ(middle.result.steps, 2);
  EXPECT_EQ(middle.saved, (std::vector<std::string>{"started", "final"}));
}

TEST(Trainer, ALossThatIsNotFinite_EndsTheRunWithTheWeightsBeforeIt) {
  const double huge = std::numeric_limits<float>::max();
  const Ran ran = run(2, 2, {.steps = 50}, huge);
  EXPECT_NE(ran.error.find("the loss is "), std::string::npos) << ran.error;
  ASSERT_FALSE(ran.recorder.steps.empty());
  const std::string before = concat("step-00000", ran.recorder.steps.size());
  EXPECT_EQ(ran.saved, (std::vector<std::string>{"started", before}));
}

TEST(Trainer, NaNIsNeverTheBest) {
  const auto allow = [](zero::EngineConfig& config, Recorder&) {
    config.precision.allow_nonfinite_loss = true;
  };
  const double huge = std::numeric_limits<float>::max();
  const Ran ran = run(1, 2, {.steps = 20, .eval_every = 5}, huge, allow);
  EXPECT_EQ(ran.error, "");
  ASSERT_EQ(ran.recorder.evaluations.size(), 4u);
  EXPECT_FALSE(std::isfinite(ran.recorder.evaluations.back()));
  EXPECT_EQ(ran.recorder.bests, std::vector<bool>(4, false));
  EXPECT_FALSE(ran.result.best_val_loss.has_value());
  EXPECT_EQ(ran.saved, (std::vector<std::string>{"started", "final"}));
}

}  // namespace trainer_test
}  // namespace zinc::train
