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
class Cycle : public data::Dataset {
 public:
  int64_t num_samples() const override { return 64; }
  void read(int64_t index, data::Sample& sample) const override {
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
  void on_evaluate(const EvaluationResult& result) override {
    evaluations.push_back(result.val_loss);
    evaluated_after.push_back(result.step);
    sets = result.sets;
    bests.push_back(result.best);
  }
  void on_end(const TrainResult&) override { ++ends; }
  std::vector<int64_t> evaluated_after;
  std::vector<SetLoss> sets;  // of the last evaluation
  int ends = 0;
  std::vector<EvaluationProgress> evaluating;
  std::vector<bool> bests;
  std::function<void()> told;
  std::vector<StepMetrics> steps;
  std::vector<double> evaluations;
};

nn::Gpt2Config tiny_gpt2() {
  nn::Gpt2Config config;
  config.vocab_size = 5;
  config.max_positions = 8;
  config.hidden_size = 16;
  config.num_layers = 1;
  config.num_heads = 2;
  return config;
}

struct Ran {
  TrainResult result;
  Recorder recorder;
  std::vector<std::string> saved;  // "started", then names
  std::string error;
};

using Prepare = std::function<void(zero::EngineConfig&, Recorder&)>;

Ran run(int world_size, int64_t micro_batch, const TrainingOptions& options, double lr = 1e-2,
        const Prepare& prepare = {}, bool two_sets = false,
        const std::atomic<bool>* stop = nullptr) {
  Ran ran;
  const Cycle dataset;
  comm::run_local_ranks(world_size, {.seed = 1, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_gpt2());
    zero::EngineConfig engine_config;
    engine_config.batch.micro_batch = micro_batch;
    engine_config.optimizer.hyper.lr = lr;
    Recorder recorder;
    if (prepare) prepare(engine_config, recorder);
    zero::Engine engine(model, engine_config, world);
    data::Loader loader(
        dataset,
        {.micro_batch = micro_batch, .seq_len = 8, .rank = world.rank(), .world = world.size()});
    const data::EvaluationSet evaluation(
        dataset, {.batch = 3, .seq_len = 8, .rank = world.rank(), .world = world.size()});
    TrainerParts parts{.stop = stop};
    std::vector<std::string> saved;
    parts.started = [&] {
      EXPECT_TRUE(recorder.steps.empty());
      saved.push_back("started");
    };
    parts.save = [&saved](const std::string& name) { saved.push_back(name); };
    const data::EvaluationSet few(
        dataset,
        {.batch = 3, .seq_len = 8, .max_samples = 5, .rank = world.rank(), .world = world.size()});
    ValidationSets sets = &evaluation;
    if (two_sets) sets = {{{"all", &evaluation}, {"few", &few}}};
    if (options.best.load_at_end) {
      parts.load_best = [&saved](const BestSoFar& best) {
        saved.push_back(str("load ", best.step));
        return true;
      };
    }
    Trainer trainer(engine, loader, sets, {}, &recorder, options, parts);
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

// The next forward pass would end the update, but there is none after the last step.
TEST(Trainer, TheLastUpdateEndsWithTheRun) {
  const Cycle dataset;
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, {.seed = 1, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_gpt2());
    zero::EngineConfig engine_config;
    engine_config.zero.stage = 1;
    engine_config.zero.offload_optimizer = {.device = zero::OffloadDevice::nvme,
                                            .nvme_path = folder.path()};
    zero::Engine engine(model, engine_config, world);
    data::Loader loader(dataset, {.micro_batch = 1, .seq_len = 8, .rank = 0, .world = 1});
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
  EXPECT_EQ(ran.recorder.ends, 1);
}

TEST(Trainer, EpochsAreSteps_TheLastOfWhichMayGoOnIntoTheNext) {
  EXPECT_EQ(data::steps_of_epochs(1.0, 64, 8), 8);
  EXPECT_EQ(data::steps_of_epochs(3.0, 64, 10), 20);  // 192 samples
  EXPECT_EQ(data::steps_of_epochs(0.5, 64, 10), 4);
  EXPECT_EQ(data::steps_of_epochs(1e-9, 64, 10), 1);
  EXPECT_EQ(data::samples_of_epochs(0.1, 50), 5);
  EXPECT_THROW(data::steps_of_epochs(0.0, 64, 8), InvalidArgument);
  EXPECT_THROW(data::steps_of_epochs(1e300, 64, 8), InvalidArgument);
}

// 64 samples by 10: epochs end in steps 7, 13 and 20, on two ranks as on one.
TEST(Trainer, EvaluatesAfterTheStepThatEndsAnEpoch) {
  const TrainingOptions options{.steps = 22, .eval_each_epoch = true};
  const std::vector<int64_t> after{7, 13, 20, 22};
  EXPECT_EQ(run(1, 10, options).recorder.evaluated_after, after);
  EXPECT_EQ(run(2, 5, options).recorder.evaluated_after, after);
}

// The delay is of evaluations on the way: of steps, or of epochs.
TEST(Trainer, EvaluatesFromTheEndOfTheDelayOn) {
  const auto after = [](int64_t every, double delay, bool on_start) {
    return run(1, 10,
               {.steps = 22,
                .eval_every = every,
                .eval_each_epoch = every == 0,
                .eval_on_start = on_start,
                .eval_delay = delay})
        .recorder.evaluated_after;
  };
  EXPECT_EQ(after(5, 10.0, false), (std::vector<int64_t>{10, 15, 20, 22}));
  EXPECT_EQ(after(5, 10.5, true), (std::vector<int64_t>{0, 15, 20, 22}));
  EXPECT_EQ(after(0, 2.0, false), (std::vector<int64_t>{13, 20, 22}));
  EXPECT_EQ(after(0, 2.5, false), (std::vector<int64_t>{20, 22}));
  EXPECT_EQ(after(5, 100.0, false), (std::vector<int64_t>{22}));
  EXPECT_THROW(after(5, -1.0, false), InvalidArgument);
}

TEST(Trainer, EvaluatesBeforeTheFirstStep_WhichIsNeverTheBest) {
  const Ran ran = run(1, 4, {.steps = 4, .eval_every = 2, .eval_on_start = true}, 0.0);
  EXPECT_EQ(ran.recorder.evaluated_after, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(ran.recorder.bests, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(ran.recorder.evaluations[0], ran.recorder.evaluations[1]);  // the learning rate is 0
  EXPECT_EQ(ran.recorder.steps.size(), 4u);
}

TEST(Trainer, OfSeveralSets_TheOneOfTheMetricDecides) {
  const auto decided_by = [](const char* metric) {
    return run(1, 4, {.steps = 2, .eval_every = 1, .best = {.metric = metric}}, 1e-2, {}, true);
  };
  const Ran all = decided_by("loss"), few = decided_by("few/loss");
  ASSERT_EQ(all.recorder.sets.size(), 2u);
  EXPECT_EQ(all.recorder.sets[0].name, "all");
  EXPECT_EQ(all.recorder.sets[1].name, "few");
  EXPECT_NE(all.recorder.sets[0].loss, all.recorder.sets[1].loss);
  EXPECT_EQ(all.result.val_loss, all.recorder.sets[0].loss);
  EXPECT_EQ(few.result.val_loss, all.recorder.sets[1].loss);
  EXPECT_EQ(few.result.best.value, few.result.val_loss);
}

// Smoothed labels are of training alone, with the same bits whatever the memory strategy.
TEST(Trainer, LabelSmoothing_ChangesTrainingLosses_WithEqualBitsOnAllStages) {
  const auto with = [](double smoothing, int stage, int64_t recompute, bool vertical, double lr) {
    return run(2, 2, {.steps = 4, .eval_every = 2}, lr, [=](zero::EngineConfig& config, Recorder&) {
      config.label_smoothing = smoothing;
      config.zero.stage = stage;
      config.recompute.every_blocks = recompute;
      if (vertical) config.pass_order = zero::PassOrder::vertical;
    });
  };
  const auto losses = [](const Ran& ran) {
    std::vector<double> of;
    for (const StepMetrics& step : ran.recorder.steps) of.push_back(step.loss);
    return of;
  };
  const Ran plain = with(0.0, 0, 0, false, 0.0), smoothed = with(0.2, 0, 0, false, 0.0);
  EXPECT_EQ(smoothed.recorder.evaluations, plain.recorder.evaluations);
  EXPECT_NE(losses(smoothed), losses(plain));
  const Ran stage_0 = with(0.2, 0, 0, false, 1e-2);
  EXPECT_NE(losses(stage_0), losses(with(0.0, 0, 0, false, 1e-2)));
  for (const int stage : {0, 1, 2, 3}) {
    for (const int64_t recompute : {0, 1}) {
      const Ran ran = with(0.2, stage, recompute, false, 1e-2);
      EXPECT_EQ(losses(ran), losses(stage_0)) << stage << recompute;
      EXPECT_EQ(ran.recorder.evaluations, stage_0.recorder.evaluations) << stage << recompute;
    }
  }
  const Ran vertical = with(0.2, 2, 1, true, 1e-2);
  EXPECT_EQ(losses(vertical), losses(stage_0));
}

TEST(Trainer, StopsEarly_WhereNoEvaluationIsBetter) {
  const Ran ran = run(2, 2, {.steps = 50, .eval_every = 2, .best = {.patience = 3}}, 0.0);
  EXPECT_TRUE(ran.result.stopped_early);
  EXPECT_FALSE(ran.result.stopped);
  EXPECT_EQ(ran.result.steps, 8);  // the first is the best, and three are not better
  EXPECT_EQ(ran.result.best.step, 2);
  EXPECT_EQ(ran.saved, (std::vector<std::string>{"started", "best", "final"}));
  const Ran patient = run(1, 2, {.steps = 8, .eval_every = 2, .best = {.patience = 4}}, 0.0);
  EXPECT_FALSE(patient.result.stopped_early);
}

TEST(Trainer, LoadsTheBestAtTheEnd_AndSavesItAsFinal) {
  const BestModelOptions first_is_best{.greater_is_better = true, .load_at_end = true};
  const Ran ran = run(1, 4, {.steps = 6, .eval_every = 2, .best = first_is_best});
  EXPECT_EQ(ran.saved, (std::vector<std::string>{"started", "best", "final", "load 2", "final"}));
  EXPECT_TRUE(ran.result.loaded_best);
  // The last step is the best: it is there already.
  const Ran last = run(1, 4, {.steps = 6, .eval_every = 6, .best = {.load_at_end = true}});
  EXPECT_EQ(last.saved, (std::vector<std::string>{"started", "final", "best"}));
  EXPECT_TRUE(last.result.loaded_best);
}

TEST(Trainer, OptionsAboutEvaluationsNeedThem) {
  EXPECT_THROW(run(1, 4, {.steps = 4, .best = {.patience = 2}}), InvalidArgument);
  EXPECT_THROW(run(1, 4, {.steps = 4, .best = {.load_at_end = true}}), InvalidArgument);
  EXPECT_THROW(run(1, 4, {.steps = 4, .eval_every = 2, .best = {.metric = "los"}}), ConfigError);
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
  const Ran ran = run(2, 2, {.steps = 50}, 1e-2, {}, false, &stop);
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
  const Ran last = run(1, 2, {.steps = 4}, 1e-2, stop_in_the_third_round, false, &stop);
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
      run(1, 2, {.steps = 50, .eval_every = 2}, 1e-2, stop_in_the_third_round, false, &stop);
  EXPECT_TRUE(middle.result.stopped);
  EXPECT_EQ(middle.result.steps, 2);
  EXPECT_EQ(middle.saved, (std::vector<std::string>{"started", "final"}));
}

TEST(Trainer, ALossThatIsNotFinite_EndsTheRunWithTheWeightsBeforeIt) {
  const double huge = std::numeric_limits<float>::max();
  const Ran ran = run(2, 2, {.steps = 50}, huge);
  EXPECT_NE(ran.error.find("the loss is "), std::string::npos) << ran.error;
  ASSERT_FALSE(ran.recorder.steps.empty());
  const std::string before = str("step-00000", ran.recorder.steps.size());
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
  EXPECT_FALSE(ran.result.best.value.has_value());
  EXPECT_EQ(ran.saved, (std::vector<std::string>{"started", "final"}));
}

// The figures that a run hands to its files beside the steps.
struct Kept {
  std::vector<int64_t> sampled, histogram_steps;
  std::vector<std::vector<Histogram>> histograms;
};

class KeepingSink final : public MetricsSink {
 public:
  explicit KeepingSink(Kept& kept) : kept_(kept) {}
  void write(const StepMetrics&) override {}
  void write_samples(const FigureTime& time, std::span<const SampleText> samples) override {
    EXPECT_EQ(samples.size(), 1U);
    kept_.sampled.push_back(time.step);
  }
  void write_histograms(const FigureTime& time, std::span<const Histogram> histograms) override {
    kept_.histogram_steps.push_back(time.step);
    kept_.histograms.emplace_back(histograms.begin(), histograms.end());
  }

 private:
  Kept& kept_;
};

// A model that is trained with stage 3 by this many ranks; one of its parameters is frozen.
Kept run_with_histograms(int world_size) {
  Kept kept;
  const Cycle dataset;
  comm::run_local_ranks(world_size, {.seed = 1, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_gpt2());
    model.freeze("*.wpe.weight");
    zero::EngineConfig engine_config;
    engine_config.zero.stage = 3;
    engine_config.batch.micro_batch = 4 / world_size;
    zero::Engine engine(model, engine_config, world);
    data::Loader loader(
        dataset,
        {.micro_batch = 4 / world_size, .seq_len = 8, .rank = world.rank(), .world = world.size()});
    std::vector<std::unique_ptr<MetricsSink>> sinks;
    if (world.rank() == 0) sinks.push_back(std::make_unique<KeepingSink>(kept));
    const auto sample = [](zero::Engine&) { return std::vector<SampleText>{{"", "text"}}; };
    Trainer(engine, loader, nullptr, std::move(sinks), nullptr,
            {.steps = 4, .sample_every = 2, .histogram_every = 3}, {.sample = sample})
        .run();
  });
  return kept;
}

TEST(Trainer, SamplesComeAtTheirIntervalAndAtTheEnd) {
  EXPECT_EQ(run_with_histograms(1).sampled, (std::vector<int64_t>{2, 4}));
}

TEST(Trainer, HistogramsHoldEveryTrainedWeight_OfAllRanks) {
  const Kept one = run_with_histograms(1), two = run_with_histograms(2);
  EXPECT_EQ(one.histogram_steps, std::vector<int64_t>{3});
  ASSERT_EQ(two.histograms.size(), 1U);
  ASSERT_EQ(one.histograms[0].size(), two.histograms[0].size());
  double total = 0.0;
  for (size_t i = 0; i < one.histograms[0].size(); ++i) {
    const Histogram &a = one.histograms[0][i], &b = two.histograms[0][i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.name.find("wpe"), std::string::npos);
    EXPECT_EQ(a.count, b.count) << a.name;
    EXPECT_GT(a.most, a.least) << a.name;
    EXPECT_NEAR(a.sum_of_squares, b.sum_of_squares, 1e-3 * (1.0 + a.sum_of_squares)) << a.name;
    total += b.count;
  }
  nn::Gpt2 model(tiny_gpt2());
  model.freeze("*.wpe.weight");
  EXPECT_EQ(total, static_cast<double>(model.num_trainable_parameters()));
}

}  // namespace trainer_test
}  // namespace zinc::train
