// A gradient policy of a client's own, as a class: zero/README.md, "A gradient policy".
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "kernels/accumulate.h"
#include "kernels/unary.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"
#include "zero/group/group_sums.h"

namespace zinc::zero {
namespace gradient_policy_test {

using test::make_batch;
using test::tiny_config;

constexpr int kWorld = 2;
constexpr double kLimit = 1e-3;

// Every gradient is clamped to [-limit, limit] on its rank, in each micro-batch, before it is
// added.
class ClampedSums final : public GroupSums {
 public:
  ClampedSums(const ShardGroup& group, Reducer& reducer, double limit)
      : GroupSums(group, reducer), limit_(limit) {}

  void add(const MicroBatchTurn& turn) override {
    const StreamRef stream = reducer().context().compute();
    const View mine = target(turn.place);
    kernels::unary({.op = kernels::UnaryOp::clamp, .x = mine, .y = mine, .p = -limit_, .q = limit_},
                   stream);
    if (!sums_) sums_ = reducer().take(mine.numel(), policy().kept);
    kernels::accumulate(
        {.x = mine, .accumulator = whole(sums_, policy().kept), .overwrite = turn.is_first()},
        stream);
  }
  comm::Work reduce(const MicroBatchTurn& turn) override {
    const StreamRef stream = reducer().begin();
    if (turn.is_last())
      set_work(reducer().all_reduce(group(), whole(sums_, policy().kept), stream));
    return work();
  }
  View on_device(const OwnedRange& slice) override {
    return part(sums_, policy().kept, slice.range);
  }
  void discard() override {
    GroupSums::discard();
    sums_.reset();
  }

 private:
  const double limit_;
  Block sums_;  // [trained_numel] policy.kept
};

EngineConfig config_of(int stage, int64_t accumulation) {
  EngineConfig config;
  config.batch.micro_batch = 2;
  config.batch.accumulation = accumulation;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 100;
  config.optimizer.hyper.lr = 1e-2;
  return config;
}

MakeGroupSums clamped() {
  return [](const ShardGroup& group, Reducer& reducer) {
    return std::make_unique<ClampedSums>(group, reducer, kLimit);
  };
}

// All gradients of a step's micro-batches, and the weights after it.
struct Found {
  std::vector<float> gradients, weights;
  bool operator==(const Found&) const = default;
};

Found train(comm::World& world, const EngineConfig& config, MakeGroupSums sums, int begin,
            int steps) {
  nn::Gpt2 model(tiny_config());
  Engine engine(model, config, world, {.gradient_sums = std::move(sums)});
  const auto keep = [&](std::vector<float>& all, const Tensor& values) {
    const auto floats = values.to_vector<float>();
    all.insert(all.end(), floats.begin(), floats.end());
  };
  Found found;
  int batch = begin;
  for (int step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < config.batch.accumulation; ++i, batch += world.size()) {
      engine.backward(engine.forward(make_batch(batch + world.rank())));
    }
    for (const auto& [name, parameter] : model.named_parameters()) {
      keep(found.gradients, engine.gradient(name));
    }
    engine.step();
  }
  for (const auto& [name, parameter] : model.named_parameters()) {
    keep(found.weights, engine.parameter(name));
  }
  return found;
}

// The sums over a micro-batch's targets of its gradients, computed on a rank alone. A step's
// gradient is the mean over the targets.
struct Sums {
  std::vector<double> values;
  double targets = 0.0;
};

Sums sums_of(int batch) {
  Sums sums;
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    sums.targets = static_cast<double>(make_batch(batch).num_targets);
    for (const float mean : train(world, config_of(0, 1), {}, batch, 1).gradients) {
      sums.values.push_back(sums.targets * static_cast<double>(mean));
    }
  });
  return sums;
}

TEST(AGradientPolicy, OfAClient_SumsAsItsClassSays) {
  constexpr int kMicroBatches = 2;
  std::vector<double> wanted;
  double targets = 0.0;
  double clamped_away = 0.0;
  for (int batch = 0; batch < kWorld * kMicroBatches; ++batch) {
    const Sums sums = sums_of(batch);
    wanted.resize(sums.values.size());
    targets += sums.targets;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double held = std::clamp(sums.values[i], -kLimit, kLimit);
      clamped_away += std::abs(sums.values[i] - held);
      wanted[i] += held;
    }
  }
  ASSERT_GT(clamped_away, 0.0);
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const Found found = train(world, config_of(1, kMicroBatches), clamped(), 0, 1);
    if (world.rank() > 0) return;
    ASSERT_EQ(found.gradients.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      // A few roundings to f32 of a sum of at most 4 limits.
      ASSERT_NEAR(found.gradients[i], wanted[i] / targets, 1e-6 * kLimit) << "element " << i;
    }
  });
}

TEST(AGradientPolicy, OfAClient_GivesTheSameBitsOnEveryStage) {
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const Found wanted = train(world, config_of(0, 3), clamped(), 0, 2);
    for (const int stage : {1, 2, 3}) {
      EXPECT_EQ(train(world, config_of(stage, 3), clamped(), 0, 2), wanted) << "stage " << stage;
    }
    EXPECT_NE(train(world, config_of(0, 3), {}, 0, 2).gradients, wanted.gradients);
  });
}

TEST(AGradientPolicy, OfAClient_WithStatesOffTheDevice_IsAConfigError) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config = config_of(2, 1);
    config.zero.offload_optimizer.device = OffloadDevice::cpu;
    nn::Gpt2 model(tiny_config());
    try {
      Engine engine(model, config, world, {.gradient_sums = clamped()});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("leave one of them out"), std::string::npos);
    }
  });
}

}  // namespace gradient_policy_test
}  // namespace zinc::zero
