// A loss that is NaN or infinite, where no overflow check skips the step: the step throws by name
// on every rank, with its update withheld, wherever states live and however passes are made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autograd/ops/scale.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace nonfinite_loss_test {

using test::make_batch;
using testing::HasSubstr;

constexpr int kRanks = 2;

// A GPT-2 that multiplies the loss of a batch.
struct FactoredGpt2 : nn::Gpt2 {
  static nn::Gpt2Config config() {
    nn::Gpt2Config config = test::tiny_config();
    config.num_layers = 2;
    return config;
  }
  FactoredGpt2() : Gpt2(config()) {}
  Tensor loss(const nn::Batch& batch) override { return factored(Gpt2::loss(batch), batch); }
  nn::TensorList stage(int64_t index, const nn::Batch& batch, nn::TensorList x) override {
    nn::TensorList next = Gpt2::stage(index, batch, std::move(x));
    if (index + 1 == num_stages()) next[0] = factored(next[0], batch);
    return next;
  }
  Tensor factored(const Tensor& sum, const nn::Batch& batch) const {
    return batch.global_micro_batch == bad_batch ? autograd::scale(sum, factor) : sum;
  }
  double factor = std::numeric_limits<double>::infinity();
  int64_t bad_batch = -1;  // the global index
};

EngineConfig unchecked_config(DType dtype, int64_t accumulation = 1) {
  EngineConfig config = test::training_config(accumulation, dtype, ReduceSchedule::micro_step);
  config.precision.check_overflow = false;
  return config;
}

struct RunToABadLoss {
  std::vector<std::string> words{"", ""};  // by rank, of the third step
  bool weights_stayed = true;
  StepResult last;
};

// Two steps, and a third one in which the last micro-batch of rank 1 has a loss that is not finite.
RunToABadLoss train_to_a_bad_loss(const EngineConfig& config, double factor) {
  RunToABadLoss ended;
  comm::run_local_ranks(kRanks, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    FactoredGpt2 model;
    model.factor = factor;
    Engine engine(model, config, world);
    const int64_t together = config.batches_together();
    const auto step = [&](int64_t number) {
      StepResult result;
      for (int64_t micro = 0; micro < config.batch.accumulation; micro += together) {
        std::vector<nn::Batch> batches;
        for (int64_t i = micro; i < micro + together; ++i) {
          const int64_t index = (number * config.batch.accumulation + i) * kRanks + world.rank();
          batches.push_back(make_batch(index));
        }
        engine.run_passes(batches);
        result = engine.step();
      }
      return result;
    };
    step(0);
    step(1);
    model.bad_batch = 3 * config.batch.accumulation * kRanks - 1;
    const std::vector<float> before = test::weights_of(engine);
    const auto rank = static_cast<size_t>(world.rank());
    StepResult result;
    try {
      result = step(2);
    } catch (const NumericsError& error) {
      ended.words[rank] = error.what();
    }
    std::vector<float> after(before.size());
    if (ended.words[rank].empty()) {
      after = test::weights_of(engine);
    } else {
      // The values that are saved after the error.
      after.clear();
      engine.read_own(Engine::Own::weights, [&](const OwnPiece& piece) {
        const auto* of = piece.values.data_as<float>();
        int64_t first = 0;
        for (const auto& [other, parameter] : engine.model().named_parameters()) {
          if (other == piece.name) break;
          first += parameter->numel();
        }
        for (int64_t i = 0; i < piece.values.numel(); ++i) {
          EXPECT_EQ(of[i], before[static_cast<size_t>(first + piece.begin + i)]) << piece.name;
        }
      });
      after = before;
    }
    if (!world.is_main()) return;
    ended.weights_stayed = after == before;
    ended.last = result;
  });
  return ended;
}

void expect_withheld(const EngineConfig& config, const std::string& micro_batch) {
  const double infinity = std::numeric_limits<double>::infinity();
  const RunToABadLoss infinite = train_to_a_bad_loss(config, infinity);
  EXPECT_THAT(infinite.words[0], HasSubstr("step 3: the loss is inf, first in micro-batch " +
                                           micro_batch + " of rank 1; no weight was changed"));
  EXPECT_EQ(infinite.words[1], infinite.words[0]);
  const RunToABadLoss nan = train_to_a_bad_loss(config, std::nan(""));
  EXPECT_THAT(nan.words[0], HasSubstr("step 3: the loss is nan, first in micro-batch " +
                                      micro_batch + " of rank 1"));
  EXPECT_EQ(nan.words[1], nan.words[0]);
}

class NonfiniteLoss : public testing::TestWithParam<std::tuple<int, DType>> {};
INSTANTIATE_TEST_SUITE_P(Stages, NonfiniteLoss,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values(DType::f32, DType::bf16)));

TEST_P(NonfiniteLoss, EndsTheRunOnAllRanks_WithNoWeightChanged) {
  EngineConfig config = unchecked_config(std::get<1>(GetParam()));
  config.zero.stage = std::get<0>(GetParam());
  expect_withheld(config, "1");
}

TEST(NonfiniteLossOfSeveral, IsNamedByItsMicroBatch) {
  EngineConfig config = unchecked_config(DType::f32, 3);
  config.zero.stage = 1;
  expect_withheld(config, "3");
  config.gradient.loss_reduction = LossReduction::micro_batch;
  expect_withheld(config, "3");
}

// Without clipping an update begins during backward, before the step decides; with it beside the
// next forward pass.
TEST(NonfiniteLossWithStatesOnNvme, WithholdsUpdatesThatBeginEarlyOrLate) {
  for (const double clipping : {0.0, 0.5}) {
    for (const PassOrder order : {PassOrder::horizontal, PassOrder::vertical}) {
      const offload::SwapFolder folder;
      EngineConfig config = unchecked_config(DType::f32, 2);
      config.gradient.clipping = clipping;
      config.pass_order = order;
      config.zero.stage = 2;
      config.zero.sub_group_size = 2048;
      config.zero.offload_optimizer = {.device = OffloadDevice::nvme,
                                       .nvme_path = folder.path(),
                                       .pipeline_read = true,
                                       .pipeline_write = true};
      expect_withheld(config, "2");
    }
  }
}

TEST(NonfiniteLossAllowed, IsApplied) {
  EngineConfig config = unchecked_config(DType::f32);
  config.precision.allow_nonfinite_loss = true;
  const RunToABadLoss ended = train_to_a_bad_loss(config, std::nan(""));
  EXPECT_EQ(ended.words, std::vector<std::string>(kRanks));
  EXPECT_EQ(ended.last.outcome, StepOutcome::applied);
  EXPECT_TRUE(std::isnan(ended.last.loss));
  EXPECT_FALSE(ended.weights_stayed);
}

// The check that skips comes first.
TEST(NonfiniteLossChecked, IsSkipped) {
  EngineConfig config = unchecked_config(DType::bf16);
  config.precision.check_overflow = true;
  const RunToABadLoss ended = train_to_a_bad_loss(config, std::nan(""));
  EXPECT_EQ(ended.words, std::vector<std::string>(kRanks));
  EXPECT_EQ(ended.last.outcome, StepOutcome::skipped_overflow);
  EXPECT_TRUE(ended.weights_stayed);
}

}  // namespace nonfinite_loss_test
}  // namespace zinc::zero
