// A configuration that asks for recomputation gets it, or is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "autograd/operators.h"
#include "autograd/ops/reduce.h"
#include "autograd/recompute.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "nn/embedding.h"
#include "nn/stages.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace asked_recomputation_test {

using testing::HasSubstr;
using testing::IsEmpty;

class Summed : public nn::Model {
 public:
  std::string_view model_type() const override { return "summed"; }
  nn::Batch example(int64_t rows, int64_t positions) const override {
    return test::make_batch(0, rows, positions > 0 ? positions : 4, 8);
  }
  int64_t max_sequence() const override { return 16; }
  Tensor loss(const nn::Batch& batch) override {
    return autograd::sum(table.forward(batch["input_ids"]));
  }
  nn::Embedding table{*this, "table", {.count = 8, .features = 4}};
};

// Reads what is asked for itself.
class OwnRecomputation : public Summed {
 public:
  Tensor loss(const nn::Batch& batch) override {
    const auto twice = [](const Tensor& x) { return x + x; };
    const Tensor x = table.forward(batch["input_ids"]);
    return autograd::sum(recompute_every() > 0 ? autograd::recompute(twice, x) : twice(x));
  }
};

// Has stages, and a loss that passes them by.
class PassedBy : public Summed, public nn::Staged {
 public:
  int64_t num_stages() override { return 3; }
  nn::TensorList stage(int64_t index, const nn::Batch& batch, nn::TensorList x) override {
    if (index == 0) return {table.forward(batch["input_ids"])};
    return {index == 1 ? x[0] + x[0] : autograd::sum(x[0])};
  }
};

class InStages : public PassedBy {
 public:
  Tensor loss(const nn::Batch& batch) override { return nn::loss_of_stages(*this, batch); }
};

template <class M>
std::string refusal(const RecomputeConfig& recompute, PassOrder order = PassOrder::horizontal,
                    bool dynamic = false) {
  try {
    comm::run_local_ranks(1, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      M model;
      EngineConfig config;
      config.recompute = recompute;
      config.pass_order = order;
      config.batch.accumulation = 2;
      EngineOptions options;
      options.dynamic_model = dynamic;
      Engine engine(model, config, world, std::move(options));
    });
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(AskedRecomputation, OfAModelThatRecomputesNothing_IsRefusedByItsKey) {
  for (const bool dynamic : {false, true}) {
    EXPECT_THAT(
        refusal<Summed>({.every_blocks = 1}, PassOrder::horizontal, dynamic),
        HasSubstr("\"recompute_every_blocks\" asks for recomputation, and summed recomputes "
                  "nothing: derive it from zinc::nn::Staged"));
  }
  EXPECT_THAT(refusal<Summed>({.num_checkpoints = 2}), HasSubstr("\"number_checkpoints\" asks"));
  EXPECT_THAT(refusal<PassedBy>({.every_blocks = 1}), HasSubstr("zinc::nn::loss_of_stages()"));
}

TEST(AskedRecomputation, OfAModelThatRecomputes_IsTaken) {
  EXPECT_THAT(refusal<InStages>({.every_blocks = 1}), IsEmpty());
  EXPECT_THAT(refusal<InStages>({.num_checkpoints = 1}), IsEmpty());
  EXPECT_THAT(refusal<OwnRecomputation>({.every_blocks = 1}), IsEmpty());
  // Passes side by side run the stages.
  EXPECT_THAT(refusal<PassedBy>({.every_blocks = 1}, PassOrder::vertical), IsEmpty());
}

TEST(AskedRecomputation, OfNoBlocks_IsNone) {
  EXPECT_THAT(refusal<Summed>({}), IsEmpty());
  EXPECT_THAT(refusal<Summed>({.every_blocks = 1, .most_blocks = 0}), IsEmpty());
  EXPECT_THAT(refusal<Summed>({.selective = true}), IsEmpty());
}

}  // namespace asked_recomputation_test
}  // namespace zinc::zero
