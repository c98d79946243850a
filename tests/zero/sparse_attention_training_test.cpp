// Training with layouts of blocks: the same bits on every stage, with recomputation and with
// micro-batches side by side; ranks that share heads or tokens give what one rank gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "nn/attention/sparse_attention.h"
#include "nn/models/bert.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace sparse_attention_training_test {

using testing::HasSubstr;

constexpr int kSteps = 2;
constexpr int64_t kTokens = 96, kRows = 2, kMicroBatches = 2;
constexpr auto kHeads = nn::SequenceExchange::heads;
constexpr auto kKeys = nn::SequenceExchange::keys;
constexpr auto kRing = nn::SequenceExchange::ring;

enum class Kind : uint8_t { gpt2, llama, bert };

std::unique_ptr<nn::Model> make(Kind kind) {
  if (kind == Kind::gpt2) {
    nn::Gpt2Config config = test::tiny_config();
    config.num_heads = 4;
    config.max_positions = kTokens;
    return std::make_unique<nn::Gpt2>(config);
  }
  if (kind == Kind::llama) {
    nn::LlamaConfig config = test::tiny_llama_config();
    config.max_positions = kTokens;
    return std::make_unique<nn::Llama>(config);
  }
  nn::BertConfig config;
  config.vocab_size = 61;
  config.max_positions = kTokens;
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.hidden_dropout = config.attention_dropout = 0.0;
  return std::make_unique<nn::Bert>(config);
}

nn::SparsityConfig layout() {
  return {.mode = nn::SparsityMode::bigbird,
          .different_layout_per_head = true,
          .num_random_blocks = 1,
          .num_sliding_window_blocks = 1};
}

struct Ranks {
  int tensor = 1, sequence = 1;
  nn::SequenceExchange exchange = kHeads;
  int size() const { return tensor * sequence; }
};

// Losses and norms of the steps, then all weights and moments.
std::vector<double> train(Kind kind, const Ranks& ranks, DType dtype,
                          const std::function<void(EngineConfig&)>& change = {}) {
  std::vector<double> result;
  comm::ConnectOptions options;
  options.seed = 7;
  options.num_threads = 1;
  comm::run_local_ranks(ranks.size(), options, [&](comm::World& world) {
    comm::RankSettings settings = world.settings();
    settings.mesh = {.tensor = ranks.tensor, .sequence = ranks.sequence};
    world.configure(settings);
    const std::unique_ptr<nn::Model> model = make(kind);
    EngineConfig config = test::training_config(kMicroBatches, dtype, ReduceSchedule::micro_step);
    config.batch.micro_batch = kRows;
    config.batch.sequence = kTokens;
    config.sequence_exchange = ranks.exchange;
    config.sparse_attention = layout();
    if (change) change(config);
    Engine engine(*model, config, world);
    std::vector<double> mine;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<nn::Batch> batches;
      for (int64_t m = 0; m < kMicroBatches; ++m) {
        batches.push_back(test::make_batch(step * kMicroBatches + m, kRows, kTokens));
      }
      if (config.pass_order == PassOrder::vertical) {
        engine.run_passes(batches);
      } else {
        for (const nn::Batch& batch : batches) engine.backward(engine.forward(batch));
      }
      const StepResult done = engine.step();
      mine.insert(mine.end(), {done.loss, done.gradient_norm});
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      for (const Tensor& kept : {engine.parameter(name), engine.optimizer_state(name, "exp_avg")}) {
        const auto values = kept.to_vector<double>();
        mine.insert(mine.end(), values.begin(), values.end());
      }
    }
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (result.empty()) result = mine;
    EXPECT_EQ(result, mine);  // every rank says the same, to the bit
  });
  return result;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double apart = 0.0, size = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

TEST(SparseAttentionTraining, ALayout_ChangesWhatIsTrained) {
  for (const Kind kind : {Kind::gpt2, Kind::llama, Kind::bert}) {
    const std::vector<double> sparse = train(kind, {}, DType::f64);
    const auto dense =
        train(kind, {}, DType::f64, [](EngineConfig& config) { config.sparse_attention.reset(); });
    const auto all = train(kind, {}, DType::f64, [](EngineConfig& config) {
      config.sparse_attention = nn::SparsityConfig{.mode = nn::SparsityMode::dense};
    });
    EXPECT_GT(distance(sparse, dense), 1e-4);
    // The same sums over blocks of another size.
    EXPECT_LT(distance(all, dense), 1e-10);
  }
}

TEST(SparseAttentionTraining, StagesAndRecomputation_HaveTheSameBits) {
  for (const Kind kind : {Kind::gpt2, Kind::bert}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<double> first = train(kind, {}, dtype);
      for (const int stage : {1, 2, 3}) {
        EXPECT_EQ(train(kind, {}, dtype,
                        [&](EngineConfig& config) {
                          config.zero.stage = stage;
                          config.recompute.every_blocks = stage == 2 ? 1 : 0;
                          if (stage == 3) config.pass_order = PassOrder::vertical;
                        }),
                  first)
            << stage;
      }
    }
  }
}

// f64: sums in another order; AdamW divides small differences by small roots.
TEST(SparseAttentionTraining, RanksThatShareHeadsOrTokens_GiveWhatOneRankGives) {
  for (const Kind kind : {Kind::gpt2, Kind::llama}) {
    const std::vector<double> one = train(kind, {}, DType::f64);
    // The chunks of four ranks that keep their queries are 12 tokens, less than a block.
    for (const Ranks& ranks : {Ranks{2, 1}, Ranks{1, 2}, Ranks{1, 2, kKeys}, Ranks{1, 4, kKeys},
                               Ranks{1, 2, kRing}, Ranks{1, 4, kRing}, Ranks{2, 2, kRing}}) {
      EXPECT_LT(distance(train(kind, ranks, DType::f64), one), 1e-10)
          << ranks.tensor << " " << ranks.sequence << " " << name_of(ranks.exchange);
    }
  }
  EXPECT_LT(distance(train(Kind::bert, {2, 1}, DType::f64), train(Kind::bert, {}, DType::f64)),
            1e-10);
}

TEST(SparseAttentionTraining, ASequenceThatIsNoMultipleOfTheBlock_IsRefused) {
  try {
    train(Kind::gpt2, {}, DType::f32, [](EngineConfig& config) { config.batch.sequence = 90; });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("sparse_attention.block: sequences of 90 tokens do not "
                                        "consist of blocks of 16; take sequences of 80 or 96"));
  }
}

// The model's layers see all again when the engine is gone.
TEST(SparseAttentionTraining, TheEngine_LeavesTheModelAsItWas) {
  comm::run_local_ranks(1, {.seed = 7}, [&](comm::World& world) {
    const std::unique_ptr<nn::Model> model = make(Kind::gpt2);
    EngineConfig config = test::training_config(1, DType::f32, ReduceSchedule::boundary);
    config.batch = {.micro_batch = kRows, .sequence = kTokens};
    const nn::Batch batch = test::make_batch(0, kRows, kTokens);
    const auto loss = [&] { return Engine(*model, config, world).evaluate(batch).loss_sum; };
    const double dense = loss();
    config.sparse_attention = layout();
    const double sparse = loss();
    config.sparse_attention.reset();
    EXPECT_NE(sparse, dense);
    EXPECT_EQ(loss(), dense);
  });
}

}  // namespace sparse_attention_training_test
}  // namespace zinc::zero
