// Losses and weights are bitwise equal from run to run, for 1, 2 and 4 threads, and with
// recomputation on or off: a GPT-2 and a Llama with dropout, in f32 and bf16.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace threads_test {

constexpr int kSteps = 6;
constexpr int64_t kVocabulary = 259;
// Large enough that loops and matrix products are really cut among threads, and of odd lengths.
constexpr int64_t kBatch = 5;
constexpr int64_t kSequence = 45;

struct Case {
  const char* model = "";
  DType dtype = DType::f32;
};

std::unique_ptr<nn::Model> make_model(const std::string& name) {
  if (name == "gpt2") {
    nn::Gpt2Config config;
    config.vocab_size = kVocabulary;
    config.max_positions = 80;
    config.hidden_size = 96;
    config.num_layers = 2;
    config.num_heads = 3;
    config.embedding_dropout = 0.1;
    config.attention_dropout = 0.1;
    config.residual_dropout = 0.1;
    return std::make_unique<nn::Gpt2>(config);
  }
  nn::LlamaConfig config;
  config.vocab_size = kVocabulary;
  config.max_positions = 80;
  config.hidden_size = 96;
  config.intermediate_size = 272;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.attention_dropout = 0.1;
  return std::make_unique<nn::Llama>(config);
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> weights;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome run(const Case& c, int num_threads, int64_t recompute_every, uint64_t seed = 5) {
  Outcome outcome;
  comm::run_local_ranks(1, {.seed = seed, .num_threads = num_threads}, [&](comm::World& world) {
    EXPECT_EQ(world.context().num_threads(), num_threads);
    EngineConfig config;
    config.batch.micro_batch = kBatch;
    config.batch.accumulation = 2;
    config.precision.dtype = c.dtype;
    config.optimizer.hyper = {.lr = 3e-3, .weight_decay = 0.1};
    config.recompute.every_blocks = recompute_every;
    const std::unique_ptr<nn::Model> model = make_model(c.model);
    Engine engine(*model, config, world);
    for (int64_t step = 0; step < kSteps; ++step) {
      StepResult result;
      for (int64_t micro = 0; micro < 2; ++micro) {
        engine.backward(
            engine.forward(test::make_batch(2 * step + micro, kBatch, kSequence, kVocabulary)));
        result = engine.step();
      }
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.gradient_norm);
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      const auto values = engine.parameter(name).to_vector<float>();
      outcome.weights.insert(outcome.weights.end(), values.begin(), values.end());
    }
  });
  return outcome;
}

class Threads : public testing::TestWithParam<Case> {};

TEST_P(Threads, CountRepetitionAndRecomputationChangeNoBit) {
  const Case c = GetParam();
  const Outcome reference = run(c, 1, 0);
  ASSERT_EQ(reference.losses.size(), static_cast<size_t>(kSteps));
  for (const double loss : reference.losses) EXPECT_TRUE(loss > 0.0 && loss < 10.0) << loss;
  EXPECT_EQ(run(c, 1, 0), reference) << "a second run";
  EXPECT_EQ(run(c, 2, 0), reference) << "2 threads";
  EXPECT_EQ(run(c, 4, 0), reference) << "4 threads";
  EXPECT_EQ(run(c, 2, 1), reference) << "every block computed again";
  EXPECT_EQ(run(c, 4, 2), reference) << "both blocks computed again as one, 4 threads";
  EXPECT_NE(run(c, 1, 0, 6).losses, reference.losses) << "another seed";
}

INSTANTIATE_TEST_SUITE_P(Models, Threads,
                         testing::Values(Case{"gpt2", DType::f32}, Case{"gpt2", DType::bf16},
                                         Case{"llama", DType::f32}, Case{"llama", DType::bf16}),
                         [](const auto& info) {
                           return std::string(info.param.model) +
                                  std::string(name_of(info.param.dtype));
                         });

}  // namespace threads_test
}  // namespace zinc::zero
