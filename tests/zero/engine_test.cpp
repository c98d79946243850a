#include "zero/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "autograd/backward.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/reduce.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "kernels/element_update.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"

namespace zinc::zero {
namespace engine_test {

using test::make_batch;
using test::one_target;
using test::tiny_config;
using test::weights_of;

struct TrainedRun {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;
  friend bool operator==(const TrainedRun&, const TrainedRun&) = default;
};

EngineConfig config_with(int64_t accumulation = 1) {
  EngineConfig config;
  config.batch.micro_batch = 2;
  config.batch.accumulation = accumulation;
  config.optimizer.hyper.lr = 1e-2;
  config.optimizer.hyper.weight_decay = 0.1;
  return config;
}

// Trains tiny GPT-2 with ranks as threads and returns rank 0's view.
TrainedRun train(int world_size, const EngineConfig& config, int steps = 4, double dropout = 0.0) {
  TrainedRun run;
  comm::run_local_ranks(world_size, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config(dropout));
    Engine engine(model, config, world);
    const int64_t per_step = config.batch.accumulation * world.size();
    for (int step = 0; step < steps; ++step) {
      StepResult result;
      for (int64_t micro = 0; micro < config.batch.accumulation; ++micro) {
        const int64_t index = step * per_step + micro * world.size() + world.rank();
        engine.backward(engine.forward(make_batch(index)));
        result = engine.step();
      }
      EXPECT_EQ(result.outcome, StepOutcome::applied);
      if (world.rank() != 0) continue;
      run.losses.push_back(result.loss);
      run.norms.push_back(result.gradient_norm);
    }
    const std::vector<float> weights = weights_of(engine);
    if (world.is_main()) run.weights = weights;
  });
  return run;
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

TEST(Engine, OneStepEqualsBackwardAndAdamWByHand) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_with();
    config.gradient.clipping = 0.0;
    nn::Gpt2 by_hand(tiny_config());
    nn::Gpt2 model(tiny_config());
    const nn::Batch batch = make_batch(0);
    autograd::backward(by_hand.loss(batch));
    Engine engine(model, config, world);
    engine.backward(engine.forward(batch));
    engine.step();
    const Tensor factor = Tensor::full({1}, 1.0 / static_cast<double>(batch.num_targets));
    for (const auto& [name, parameter] : by_hand.named_parameters()) {
      const Tensor m = Tensor::zeros(parameter->shape());
      const Tensor v = Tensor::zeros(parameter->shape());
      const Shape flat{parameter->numel()};
      kernels::element_update(
          {.weights = parameter->data().view().reshape(flat),
           .gradient = parameter->grad()->view().reshape(flat),
           .states = {m.view().reshape(flat), v.view().reshape(flat)},
           .factor = factor.view(),
           .constants = {.lr = 1e-2, .weight_decay = parameter->decays() ? 0.1 : 0.0}},
          world.context().compute());
      EXPECT_EQ(engine.parameter(name).to_vector<float>(), parameter->data().to_vector<float>())
          << name;
    }
  });
}

TEST(Engine, LossFallsOnOneBatch) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_with(), world);
    const nn::Batch batch = make_batch(0);
    std::vector<double> losses;
    for (int step = 0; step < 30; ++step) {
      engine.backward(engine.forward(batch));
      losses.push_back(engine.step().loss);
    }
    EXPECT_NEAR(losses.front(), std::log(37.0), 0.1);
    EXPECT_LT(losses.back(), 0.5 * losses.front());
  });
}

// The same four micro-batches per step, spread differently, are the same step but for rounding: a
// handful of additions in another order, amplified by AdamW's division in a few steps.
TEST(Engine, AccumulationAndRanksAreTheSameGlobalBatch) {
  const TrainedRun reference = train(1, config_with(4));
  for (const auto& [world, accumulation] : {std::pair{2, 2}, std::pair{4, 1}}) {
    const TrainedRun run = train(world, config_with(accumulation));
    for (size_t i = 0; i < run.losses.size(); ++i) {
      EXPECT_NEAR(run.losses[i], reference.losses[i], 1e-5) << world;
      EXPECT_NEAR(run.norms[i], reference.norms[i], 1e-4 * reference.norms[i]) << world;
    }
    EXPECT_LT(relative_difference(run.weights, reference.weights), 1e-4);
  }
}

TEST(Engine, BucketsAndOverlapChangeNoBit) {
  for (const auto& [world, accumulation] : {std::pair{3, 1}, std::pair{2, 2}}) {
    for (const ReduceSchedule schedule : {ReduceSchedule::boundary, ReduceSchedule::micro_step}) {
      EngineConfig config = config_with(accumulation);
      config.gradient.reduce_schedule = schedule;
      const TrainedRun reference = train(world, config, 4, 0.1);
      config.zero.reduce_bucket_size = 1;  // one unit per bucket
      EXPECT_EQ(train(world, config, 4, 0.1), reference);
      config.zero.overlap_comm = true;
      EXPECT_EQ(train(world, config, 4, 0.1), reference);
    }
  }
}

TEST(Engine, RecomputationChangesNoBit) {
  EngineConfig config = config_with(2);
  const TrainedRun reference = train(2, config, 4, 0.1);
  for (const int64_t every : {1, 3}) {
    config.recompute.every_blocks = every;
    EXPECT_EQ(train(2, config, 4, 0.1), reference) << every;
  }
}

TEST(Engine, PersistenceThresholdChangesNoBit) {
  EngineConfig config = config_with();
  const TrainedRun reference = train(2, config);
  for (const int64_t threshold : {0, 100, 1 << 20}) {
    config.zero.param_persistence_threshold = threshold;
    EXPECT_EQ(train(2, config), reference) << threshold;
  }
}

TEST(Engine, Bf16TrainsWithF32MasterWeights) {
  EngineConfig config = config_with(2);
  const TrainedRun f32 = train(2, config, 6);
  config.precision.dtype = DType::bf16;
  config.precision.check_overflow = true;
  const TrainedRun bf16 = train(2, config, 6);
  for (size_t i = 0; i < f32.losses.size(); ++i) {
    EXPECT_NEAR(bf16.losses[i], f32.losses[i], 3e-2);  // 2^-8 of values around 3.6, and drift
  }
  int representable = 0;
  for (const float weight : bf16.weights) {
    if (static_cast<float>(zinc::bf16(weight)) == weight) ++representable;
  }
  EXPECT_LT(representable, static_cast<int>(bf16.weights.size()) / 2)
      << "master weights must not be rounded to bf16";
}

TEST(Engine, OverflowSkipsTheStepAndChangesNoWeight) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_with();
    config.precision.dtype = DType::f16;
    config.precision.check_overflow = true;
    config.precision.loss_scale = {.dynamic = true, .initial_scale_power = 24, .hysteresis = 1};
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    const std::vector<float> before = weights_of(engine);
    int skipped = 0;
    StepResult result;
    for (int64_t step = 0; step < 40; ++step) {
      const double scale = engine.state().loss_scale.scale;
      const double lr = engine.learning_rate();
      engine.backward(engine.forward(make_batch(2 * step + world.rank())));
      result = engine.step();
      EXPECT_EQ(result.loss_scale, scale);
      if (result.outcome == StepOutcome::applied) break;
      ++skipped;
      EXPECT_FALSE(result.overflow.empty());
      EXPECT_EQ(engine.state().loss_scale.scale, scale / 2);
      EXPECT_EQ(engine.learning_rate(), lr);
      EXPECT_EQ(weights_of(engine), before);
    }
    EXPECT_GT(skipped, 0);
    EXPECT_EQ(result.outcome, StepOutcome::applied);
    EXPECT_EQ(engine.state().applied, 1);
    EXPECT_EQ(engine.state().skipped(), skipped);
    EXPECT_NE(weights_of(engine), before);
  });
}

TEST(Engine, ClippingBoundsTheUpdateAndReportsTheNormBefore) {
  EngineConfig config = config_with();
  config.optimizer.kind = optim::OptimizerKind::sgd;
  config.optimizer.hyper = {.lr = 1.0};
  config.gradient.clipping = 0.0;
  const TrainedRun open = train(1, config, 1);
  config.gradient.clipping = 0.01;
  const TrainedRun clipped = train(1, config, 1);
  EXPECT_EQ(open.norms, clipped.norms);
  config.optimizer.hyper.lr = 0.0;
  const TrainedRun start = train(1, config, 1);
  const auto moved = [&](const TrainedRun& run) {
    double sum = 0.0;
    for (size_t i = 0; i < run.weights.size(); ++i) {
      sum += std::pow(static_cast<double>(run.weights[i]) - start.weights[i], 2);
    }
    return std::sqrt(sum);
  };
  EXPECT_NEAR(moved(open), open.norms[0], 1e-4 * open.norms[0]);
  EXPECT_NEAR(moved(clipped), 0.01, 1e-4 * 0.01 + 1e-5);
}

TEST(Engine, MicroBatchLossIsTheMeanOfMeans) {
  comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_with();
    config.gradient.loss_reduction = LossReduction::micro_batch;
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config, world);
    const Loss loss = engine.forward(make_batch(world.rank()));
    Evaluation means;
    for (const Evaluation& part : gather(engine, {.loss_sum = loss.mean(), .num_targets = 1})) {
      means += part;
    }
    engine.backward(loss);
    EXPECT_DOUBLE_EQ(engine.step().loss, means.mean());
  });
}

TEST(Engine, MicroBatchWithoutTargetsAddsNothing) {
  for (const LossReduction reduction : {LossReduction::tokens, LossReduction::micro_batch}) {
    comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Batch nothing = make_batch(1);
      const std::vector<int64_t> labels(static_cast<size_t>(nothing.num_tokens), nn::kIgnoredLabel);
      nothing.tensors.set("labels",
                          Tensor::from<int64_t>(labels, nothing["labels"].shape(), DType::i32));
      nothing.num_targets = 0;
      const auto norm = [&](const std::vector<nn::Batch>& batches) {
        EngineConfig config = config_with(static_cast<int64_t>(batches.size()));
        config.gradient.loss_reduction = reduction;
        nn::Gpt2 model(tiny_config());
        Engine engine(model, config, world);
        StepResult result;
        for (const nn::Batch& batch : batches) {
          engine.backward(engine.forward(batch));
          result = engine.step();
        }
        return result.gradient_norm;
      };
      const double batches = reduction == LossReduction::tokens ? 1.0 : 2.0;
      const double alone = norm({make_batch(0)});
      EXPECT_GT(alone, 0.0);
      EXPECT_NEAR(norm({make_batch(0), nothing}), alone / batches, 1e-6 * alone);
    });
  }
}

TEST(Engine, EvaluationLeavesTrainingAlone) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    std::vector<std::vector<double>> losses(2);
    for (int with_evaluation = 0; with_evaluation < 2; ++with_evaluation) {
      nn::Gpt2 model(tiny_config(0.1));
      Engine engine(model, config_with(2), world);
      for (int64_t i = 0; i < 6; ++i) {
        const Loss loss = engine.forward(make_batch(i));
        if (with_evaluation == 1) {
          const Evaluation first = engine.evaluate(make_batch(77));
          EXPECT_EQ(first.loss_sum, engine.evaluate(make_batch(77)).loss_sum);
          EXPECT_TRUE(model.is_training());
        }
        engine.backward(loss);
        losses[static_cast<size_t>(with_evaluation)].push_back(engine.step().loss);
      }
    }
    EXPECT_EQ(losses[0], losses[1]);
  });
}

TEST(Engine, CallsOutOfOrderAreRefused) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, config_with(), world);
    EXPECT_THROW(engine.step(), InvalidArgument);
    EXPECT_THROW(engine.backward({}), InvalidArgument);
    engine.backward(engine.forward(make_batch(0)));
    EXPECT_THROW(engine.backward(engine.forward(make_batch(1))), InvalidArgument);
    EXPECT_EQ(engine.step().outcome, StepOutcome::applied);
    EXPECT_THROW(engine.step(), InvalidArgument);
    EXPECT_THROW(engine.parameter("transformer.h.9.ln_1.weight"), InvalidArgument);
    EXPECT_THROW(engine.optimizer_state("transformer.wte.weight", "exp"), InvalidArgument);
  });
}

// Uses its two weights in an order that can be turned round, and can leave one out.
struct Fickle : test::LossOnly {
  Tensor loss(const nn::Batch&) override {
    Tensor x = Tensor::full({2, 4}, 1.0);
    if (turned) {
      x = autograd::linear(autograd::linear(x, b), a);
    } else if (without_b) {
      x = autograd::linear(autograd::linear(x, a), a);
    } else {
      x = autograd::linear(autograd::linear(x, a), b);
    }
    return autograd::sum(x);
  }
  nn::Parameter a{*this, "a", {4, 4}, autograd::Initializer::normal(1.0)};
  nn::Parameter b{*this, "b", {4, 4}, autograd::Initializer::normal(1.0)};
  bool turned = false;
  bool without_b = false;
};

TEST(Engine, AModelThatLeavesItsScheduleIsNamed) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    Fickle model;
    EngineConfig config = config_with();
    config.batch.micro_batch = 1;
    Engine engine(model, config, world);
    model.turned = true;
    try {
      engine.forward(one_target());
      FAIL() << "expected InvalidArgument";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what())
                    .find("forward pass at event 1: use of b instead of "
                          "use of a"),
                std::string::npos)
          << error.what();
    }
  });
}

// Both parameters are of one group, which every rank uses.
TEST(Engine, ADynamicModelMayLeaveParametersOut_OnEveryStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    comm::run_local_ranks(2, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      Fickle model;
      EngineConfig config = config_with();
      config.batch.micro_batch = 1;
      config.optimizer.kind = optim::OptimizerKind::sgd;
      config.optimizer.hyper = {.lr = 0.5};
      config.gradient.clipping = 0.0;
      config.zero.stage = stage;
      config.zero.param_persistence_threshold = 0;
      Engine engine(model, config, world, {.dynamic_model = true});
      const auto train = [&] {
        engine.backward(engine.forward(one_target()));
        const auto gradient = engine.gradient("b").to_vector<float>();
        engine.step();
        return gradient;
      };
      engine.set_learning_rate(0.0);  // the next gradient is that of the same weights
      auto both = train();
      engine.set_learning_rate({});
      const auto before = engine.parameter("b").to_vector<float>();
      // Unused on rank 1: counts as zero there, so the gradient is half of rank 0's.
      model.without_b = world.rank() == 1;
      const auto half = train();
      EXPECT_NE(half, std::vector<float>(16, 0.0f));
      for (float& value : both) value /= 2;
      EXPECT_EQ(half, both);
      EXPECT_NE(engine.parameter("b").to_vector<float>(), before);
      const auto between = engine.parameter("b").to_vector<float>();
      model.without_b = true;
      EXPECT_EQ(train(), std::vector<float>(16, 0.0f));
      EXPECT_EQ(engine.parameter("b").to_vector<float>(), between);
    });
  }
}

TEST(Engine, AnUnusedParameterIsAnErrorWhereTheConfigurationSaysSo) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    Fickle model;
    EngineConfig config = config_with();
    config.batch.micro_batch = 1;
    config.zero.ignore_unused_parameters = false;
    Engine engine(model, config, world, {.dynamic_model = true});
    model.without_b = true;
    try {
      engine.backward(engine.forward(one_target()));
      FAIL() << "expected InvalidArgument";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("parameter 'b' took no part"), std::string::npos);
    }
  });
}

TEST(Engine, RanksWithDifferentModelsAreNamed) {
  try {
    comm::run_local_ranks(3, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2Config config = tiny_config();
      if (world.rank() == 2) config.hidden_size = 27;
      nn::Gpt2 model(config);
      Engine engine(model, config_with(), world);
    });
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("layout of rank 2 differs from that of rank 0"),
              std::string::npos)
        << error.what();
  }
}

TEST(Engine, TakesOverValuesThatTheModelHolds) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    model.parameter("transformer.ln_f.weight").data().fill(1.5);
    EngineConfig config = config_with();
    config.precision.dtype = DType::bf16;
    {
      Engine engine(model, config, world);
      EXPECT_EQ(engine.parameter("transformer.ln_f.weight").to_vector<float>(),
                std::vector<float>(24, 1.5f));
      engine.set_parameter("transformer.ln_f.weight", Tensor::full({24}, 0.3));
      EXPECT_EQ(engine.parameter("transformer.ln_f.weight").to_vector<float>(),
                std::vector<float>(24, 0.3f));
    }
  });
}

}  // namespace engine_test
}  // namespace zinc::zero
