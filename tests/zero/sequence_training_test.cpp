// Training with sequences shared between ranks gives what one rank gives: losses, norms, weights,
// states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/nn/plain_lm.h"
#include "tests/zero/mesh_models.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace sequence_training_test {

using testing::HasSubstr;

constexpr int kSteps = 3;
constexpr int64_t kTokens = 16;  // of a sequence
constexpr int64_t kRows = 2;     // sequences of a micro-batch

enum class Kind : uint8_t {
  gpt2,
  llama,
  grouped,
  few_heads,
  qwen3,
  bloom,
  neox,
  chatglm,
  plain,
  plain_of_two
};

std::unique_ptr<nn::Model> make(Kind kind) {
  switch (kind) {
    case Kind::gpt2: {
      nn::Gpt2Config config = test::tiny_config();
      config.num_heads = 4;
      return std::make_unique<nn::Gpt2>(config);
    }
    case Kind::llama: {
      nn::LlamaConfig config = test::tiny_llama_config();
      config.num_kv_heads = 4;
      return std::make_unique<nn::Llama>(config);
    }
    case Kind::grouped: {
      nn::LlamaConfig config = test::tiny_llama_config();
      config.hidden_size = 32;
      config.num_heads = 8;
      config.num_kv_heads = 4;
      return std::make_unique<nn::Llama>(config);
    }
    case Kind::few_heads:  // 2 of keys and values
      return std::make_unique<nn::Llama>(test::tiny_llama_config());
    case Kind::qwen3: {
      nn::LlamaConfig config = test::tiny_llama_config();
      config.kind = nn::LlamaKind::qwen3;
      config.num_kv_heads = 4;
      return std::make_unique<nn::Llama>(config);
    }
    case Kind::bloom:
      return test::make_mesh_bloom();
    case Kind::neox:
      return test::make_mesh_neox();
    case Kind::chatglm:
      return test::make_mesh_chatglm();
    case Kind::plain:
      return std::make_unique<nn::test::PlainLm>();
    case Kind::plain_of_two:
      return std::make_unique<nn::test::PlainLm>(
          nn::test::PlainConfig{.kv_heads = 2, .norms = false});
  }
  return nullptr;
}

// Labels are ignored unevenly: all of the second half of one row, and the first quarter of another;
// in one micro-batch of a step all but the last token of the first row. Documents are packed.
nn::Batch batch_of(int64_t index, int64_t rows = kRows) {
  nn::Batch batch = test::make_batch(index, rows, kTokens);
  auto labels = batch["labels"].to_vector<int64_t>();
  const auto ignore = [&](int64_t row, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      labels[static_cast<size_t>(row * kTokens + t)] = nn::kIgnoredLabel;
    }
  };
  ignore(0, kTokens / 2, kTokens);
  if (rows > 1) ignore(1, 0, kTokens / 4);
  if (index % 4 == 1) {
    ignore(0, 0, kTokens - 1);
    labels[static_cast<size_t>(kTokens - 1)] = 5;
    for (int64_t row = 1; row < rows; ++row) ignore(row, 0, kTokens);
  }
  batch.num_targets = 0;
  for (const int64_t label : labels) batch.num_targets += label == nn::kIgnoredLabel ? 0 : 1;
  batch.tensors.set("labels", Tensor::from<int64_t>(labels, {rows, kTokens}, DType::i32));
  std::vector<int64_t> starts(static_cast<size_t>(rows * kTokens), 0), positions;
  for (int64_t t = 5; t < kTokens; ++t) starts[static_cast<size_t>(t)] = 5;
  for (int64_t i = 0; i < rows * kTokens; ++i) {
    positions.push_back(i % kTokens - starts[static_cast<size_t>(i)]);
  }
  batch.tensors.set("positions", Tensor::from<int64_t>(positions, {rows, kTokens}, DType::i32));
  batch.tensors.set("document_starts", Tensor::from<int64_t>(starts, {rows, kTokens}, DType::i32));
  return batch;
}

struct Trained {
  std::vector<double> figures;  // loss, targets and norm of every step, then of evaluations
  std::vector<double> values;   // weights, moments and gradients
};

struct Ranks {
  int sequence = 1;
  int data = 1;
  int tensor = 1;
  nn::SequenceExchange exchange = nn::SequenceExchange::heads;
};
constexpr auto kKeys = nn::SequenceExchange::keys;
constexpr auto kRing = nn::SequenceExchange::ring;
constexpr nn::SequenceExchange kExchanges[] = {nn::SequenceExchange::heads, kKeys, kRing};

EngineConfig config_of(int stage, int64_t accumulation, DType dtype) {
  EngineConfig config = test::training_config(accumulation, dtype, ReduceSchedule::micro_step);
  config.batch.micro_batch = kRows;
  config.batch.sequence = kTokens;
  config.zero.stage = stage;
  return config;
}

void take_mesh(comm::World& world, const Ranks& ranks) {
  comm::RankSettings settings = world.settings();
  settings.mesh = {.tensor = ranks.tensor, .sequence = ranks.sequence};
  world.configure(settings);
}

Trained train(Kind kind, const Ranks& ranks, int stage, int64_t micro_batches, DType dtype,
              const std::function<void(EngineConfig&)>& change = {}, bool shuffled = false) {
  Trained result;
  comm::ConnectOptions options;
  options.seed = 7;
  options.num_threads = 1;
  if (shuffled) {
    options.execution = ContextOptions::Execution::shuffled;
    options.shuffle_seed = 11;
  }
  comm::run_local_ranks(
      ranks.sequence * ranks.data * ranks.tensor, options, [&](comm::World& world) {
        take_mesh(world, ranks);
        const std::unique_ptr<nn::Model> model = make(kind);
        EngineConfig config = config_of(stage, micro_batches / ranks.data, dtype);
        config.sequence_exchange = ranks.exchange;
        if (change) change(config);
        Engine engine(*model, config, world);
        Trained mine;
        const auto keep = [&](const Tensor& tensor) {
          const auto values = tensor.to_vector<double>();
          mine.values.insert(mine.values.end(), values.begin(), values.end());
        };
        for (int step = 0; step < kSteps; ++step) {
          std::vector<nn::Batch> batches;
          for (int64_t m = 0; m < micro_batches / ranks.data; ++m) {
            const int64_t index =
                step * micro_batches + m * world.data().size() + world.data().rank();
            batches.push_back(batch_of(index, config.batch.micro_batch));
          }
          if (config.pass_order == PassOrder::vertical) {
            engine.run_passes(batches);
          } else {
            for (const nn::Batch& batch : batches) engine.backward(engine.forward(batch));
          }
          if (step == 0) {
            for (const auto& [name, parameter] : model->named_parameters()) {
              keep(engine.gradient(name));
            }
          }
          const StepResult done = engine.step();
          mine.figures.insert(mine.figures.end(), {done.loss, static_cast<double>(done.num_targets),
                                                   done.gradient_norm});
        }
        Evaluation total;
        for (int64_t i = 0; i < micro_batches / ranks.data; ++i) {
          const int64_t index = 50 + i * world.data().size() + world.data().rank();
          const auto parts =
              gather(engine, engine.evaluate(batch_of(index, config.batch.micro_batch)));
          EXPECT_EQ(std::ssize(parts), world.data().size());
          for (const Evaluation& part : parts) total += part;
        }
        mine.figures.insert(mine.figures.end(),
                            {total.loss_sum, static_cast<double>(total.num_targets)});
        for (const auto& [name, parameter] : model->named_parameters()) {
          keep(engine.parameter(name));
          keep(engine.optimizer_state(name, "exp_avg"));
        }
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        if (result.values.empty()) result = mine;
        // Every rank says the same, to the bit.
        EXPECT_EQ(result.figures, mine.figures);
        EXPECT_EQ(result.values, mine.values);
      });
  return result;
}

// sqrt(sum (a - b)^2 / sum b^2)
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double apart = 0.0, size = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(apart / size);
}

// f64: sums of 10^2 to 10^4 terms in another order are 1e-14 apart; AdamW divides small differences
// by small roots, which costs some digits.
void expect_same(const Trained& shared, const Trained& one) {
  ASSERT_FALSE(one.values.empty());
  EXPECT_LT(distance(shared.figures, one.figures), 1e-12);
  EXPECT_LT(distance(shared.values, one.values), 1e-10);
}

class SequenceTraining : public testing::TestWithParam<std::tuple<Kind, Ranks, int>> {};

TEST_P(SequenceTraining, GivesWhatOneRankGives) {
  const auto& [kind, ranks, stage] = GetParam();
  expect_same(train(kind, ranks, stage, 4, DType::f64), train(kind, {}, 0, 4, DType::f64));
}

const auto numbered = [](const auto& info) { return testing::PrintToString(info.index); };

INSTANTIATE_TEST_SUITE_P(Models, SequenceTraining,
                         testing::Combine(testing::Values(Kind::gpt2, Kind::llama, Kind::grouped,
                                                          Kind::qwen3, Kind::bloom, Kind::neox,
                                                          Kind::chatglm, Kind::plain),
                                          testing::Values(Ranks{2, 1}, Ranks{4, 1}),
                                          testing::Values(1)),
                         numbered);
INSTANTIATE_TEST_SUITE_P(Stages, SequenceTraining,
                         testing::Combine(testing::Values(Kind::gpt2, Kind::llama),
                                          testing::Values(Ranks{2, 2}),
                                          testing::Values(0, 1, 2, 3)),
                         numbered);
INSTANTIATE_TEST_SUITE_P(WithTensorRanks, SequenceTraining,
                         testing::Combine(testing::Values(Kind::gpt2, Kind::llama, Kind::bloom,
                                                          Kind::chatglm, Kind::plain),
                                          testing::Values(Ranks{2, 1, 2}, Ranks{2, 2, 2}),
                                          testing::Values(1, 3)),
                         numbered);

INSTANTIATE_TEST_SUITE_P(
    ModelsByKeys, SequenceTraining,
    testing::Combine(testing::Values(Kind::gpt2, Kind::few_heads, Kind::qwen3, Kind::bloom,
                                     Kind::neox, Kind::chatglm, Kind::plain, Kind::plain_of_two),
                     testing::Values(Ranks{2, 1, 1, kKeys}, Ranks{4, 1, 1, kKeys},
                                     Ranks{2, 1, 1, kRing}, Ranks{4, 1, 1, kRing}),
                     testing::Values(1)),
    numbered);
INSTANTIATE_TEST_SUITE_P(
    StagesByKeys, SequenceTraining,
    testing::Combine(testing::Values(Kind::gpt2, Kind::few_heads),
                     testing::Values(Ranks{2, 2, 1, kKeys}, Ranks{2, 1, 2, kKeys},
                                     Ranks{2, 2, 1, kRing}, Ranks{2, 1, 2, kRing}),
                     testing::Values(0, 3)),
    numbered);

// One sequence, whose blocks need no copies; recomputed blocks, means of means, and micro-batches
// side by side.
TEST(SequenceWays, GiveWhatOneRankGives) {
  const std::function<void(EngineConfig&)> ways[] = {
      [](EngineConfig& config) { config.batch.micro_batch = 1; },
      [](EngineConfig& config) { config.recompute.every_blocks = 1; },
      [](EngineConfig& config) { config.gradient.loss_reduction = LossReduction::micro_batch; },
      [](EngineConfig& config) {
        config.pass_order = PassOrder::vertical;
        config.gradient.reduce_schedule = ReduceSchedule::micro_step;
      },
      [](EngineConfig& config) { config.label_smoothing = 0.1; },
      [](EngineConfig& config) {
        config.gradient.clipping = 0.0;
        config.precision.check_overflow = false;
        config.zero.offload_optimizer.device = OffloadDevice::cpu;
      },
      [](EngineConfig& config) { config.determinism = Determinism::world; }};
  for (size_t i = 0; i < std::size(ways); ++i) {
    SCOPED_TRACE(i);
    const Trained one = train(Kind::gpt2, {}, 2, 4, DType::f64, ways[i]);
    for (const nn::SequenceExchange exchange : kExchanges) {
      SCOPED_TRACE(name_of(exchange));
      expect_same(train(Kind::gpt2, {2, 2, 1, exchange}, 2, 4, DType::f64, ways[i]), one);
    }
  }
}

// No bit depends on the stage.
TEST(SequenceStages, HaveTheSameBits) {
  for (const nn::SequenceExchange exchange : kExchanges) {
    SCOPED_TRACE(name_of(exchange));
    const Ranks ranks{2, 2, 1, exchange};
    const Trained first = train(Kind::gpt2, ranks, 0, 4, DType::bf16);
    for (const int stage : {1, 2, 3}) {
      const Trained other =
          train(Kind::gpt2, ranks, stage, 4, DType::bf16, [&](EngineConfig& config) {
            config.recompute.every_blocks = stage == 2 ? 1 : 0;
            if (stage == 3) config.zero.offload_optimizer.device = OffloadDevice::cpu;
          });
      EXPECT_EQ(other.figures, first.figures) << stage;
      EXPECT_EQ(other.values, first.values) << stage;
    }
  }
}

// Nor on when what lies on other streams runs.
TEST(SequenceRing, ShuffledStreams_HaveTheSameBits) {
  for (const int stage : {1, 3}) {
    const Ranks ranks{4, 1, 1, kRing};
    const Trained first = train(Kind::few_heads, ranks, stage, 2, DType::bf16);
    const Trained other = train(Kind::few_heads, ranks, stage, 2, DType::bf16, {}, true);
    EXPECT_EQ(other.figures, first.figures) << stage;
    EXPECT_EQ(other.values, first.values) << stage;
  }
}

// The whole loss of ranks that drop scores, at weights + `by` x direction; the direction is the
// gradient at 0, whose square is returned too.
struct Moved {
  double loss = 0.0, square = 0.0;
};
Moved loss_with_dropout(nn::SequenceExchange exchange, double by,
                        std::map<std::string, Tensor>& direction) {
  Moved moved;
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
    take_mesh(world, {.sequence = 2});
    nn::Gpt2Config shape = test::tiny_config();
    shape.num_heads = 4;
    shape.attention_dropout = 0.5;
    nn::Gpt2 model(shape);
    EngineConfig config = config_of(0, 1, DType::f64);
    config.sequence_exchange = exchange;
    Engine engine(model, config, world);
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (by == 0.0) continue;
      const auto towards = direction.at(name).to_vector<double>();
      const Tensor whole = engine.parameter(name);
      auto values = whole.to_vector<double>();
      for (size_t i = 0; i < values.size(); ++i) values[i] += by * towards[i];
      engine.set_parameter(name, Tensor::from<double>(values, whole.shape(), DType::f64));
    }
    const Loss loss = engine.forward(batch_of(0));
    const double own = loss.sum.item();
    engine.backward(loss);
    static std::mutex mutex;
    for (const auto& [name, parameter] : model.named_parameters()) {
      const Tensor gradient = engine.gradient(name);
      const std::lock_guard lock(mutex);
      if (world.is_main() && by == 0.0) direction[name] = gradient;
      if (!world.is_main()) continue;
      for (const double value : gradient.to_vector<double>()) moved.square += value * value;
    }
    const std::lock_guard lock(mutex);
    moved.loss += own / static_cast<double>(batch_of(0).num_targets);
  });
  return moved;
}

// Backward drops the scores that forward has dropped.
TEST(SequenceDropout, GradientsAreThoseOfTheLoss) {
  for (const nn::SequenceExchange exchange : kExchanges) {
    SCOPED_TRACE(name_of(exchange));
    std::map<std::string, Tensor> direction;
    const Moved here = loss_with_dropout(exchange, 0.0, direction);
    const double step = 1e-5;
    const double up = loss_with_dropout(exchange, step, direction).loss;
    const double down = loss_with_dropout(exchange, -step, direction).loss;
    // The bound leaves room for third derivatives.
    EXPECT_NEAR((up - down) / (2.0 * step), here.square, 1e-6 * here.square);
  }
}

// Every rank learns of a gradient that is not finite in the tokens of one rank.
TEST(SequenceOverflow, IsSkippedOnAllRanks) {
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [](comm::World& world) {
    take_mesh(world, {.sequence = 2});
    const auto model = make(Kind::gpt2);
    EngineConfig config = config_of(1, 1, DType::f32);
    config.precision.check_overflow = true;
    Engine engine(*model, config, world);
    // The last position, whose token the second rank has.
    const std::string name = "transformer.wpe.weight";
    engine.edit({name}, [](Engine::EditedParameters& parameters) {
      Tensor& weight = parameters.begin()->second;
      auto values = weight.to_vector<float>();
      values.back() = std::numeric_limits<float>::infinity();
      weight.copy_from(Tensor::from<float>(values, weight.shape()));
    });
    engine.backward(engine.forward(batch_of(0)));
    const StepResult result = engine.step();
    EXPECT_EQ(result.outcome, StepOutcome::skipped_overflow);
  });
}

// Ranks that share a sequence drop features of their own.
TEST(SequenceDropout, DiffersBetweenParts) {
  std::mutex mutex;
  std::set<double> losses;
  for (const int sequence : {1, 2}) {
    comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
      take_mesh(world, {.sequence = sequence});
      nn::Gpt2Config shape = test::tiny_config(0.5);
      shape.num_heads = 4;
      nn::Gpt2 model(shape);
      Engine engine(model, config_of(0, 1, DType::f64), world);
      nn::Batch batch = batch_of(0);
      // The same token everywhere, and no position: parts differ by what is dropped alone.
      batch.tensors.set("input_ids", Tensor::zeros({kRows, kTokens}, DType::i32));
      engine.set_parameter("transformer.wpe.weight",
                           Tensor::zeros(model.parameter("transformer.wpe.weight").shape()));
      batch.tensors.set("labels", Tensor::zeros({kRows, kTokens}, DType::i32));
      batch.tensors.set("document_starts", Tensor());
      const double loss = engine.forward(batch).sum.item();
      const std::lock_guard lock(mutex);
      losses.insert(loss);
    });
  }
  EXPECT_EQ(losses.size(), 3u);  // one of two ranks with the same batch, two of parts
}

TEST(SequenceGeneration, IsWhole) {
  comm::run_local_ranks(2, {.seed = 7, .num_threads = 1}, [](comm::World& world) {
    const Tensor ids = Tensor::from<int64_t>({1, 2, 3, 4, 5}, {1, 5}, DType::i32);
    std::vector<std::vector<double>> logits;
    for (const int sequence : {1, 2}) {
      take_mesh(world, {.sequence = sequence});
      const auto model = make(Kind::llama);
      Engine engine(*model, config_of(3, 1, DType::f64), world);
      logits.push_back(engine.next_logits(ids).to_vector<double>());
      nn::Batch batch{.tensors = {{"input_ids", ids}}};
      logits.push_back(engine.predict([&] {
        return nn::require_interface<nn::HasOutputs>(*model, "a test")
            .outputs(batch)["logits"]
            .to_vector<double>();
      }));
    }
    EXPECT_EQ(logits[0], logits[2]);
    EXPECT_EQ(logits[1], logits[3]);
  });
}

TEST(SequenceErrors, NameTheCure) {
  const auto message_of = [](int ranks, comm::Mesh mesh, test::Family family, int64_t tokens,
                             nn::SequenceExchange exchange = nn::SequenceExchange::heads) {
    std::string message;
    try {
      comm::run_local_ranks(ranks, {.seed = 7, .num_threads = 1}, [&](comm::World& world) {
        comm::RankSettings settings = world.settings();
        settings.mesh = mesh;
        world.configure(settings);
        const auto model = test::make_tiny_model(family);
        EngineConfig config = config_of(0, 1, DType::f32);
        config.batch.sequence = tokens;
        config.sequence_exchange = exchange;
        Engine engine(*model, config, world);
      });
    } catch (const ConfigError& error) {
      message = error.what();
    }
    return message;
  };
  using test::Family;
  const comm::Mesh two{.sequence = 2};
  EXPECT_THAT(message_of(3, two, Family::llama, 16),
              HasSubstr("zinc.mesh.sequence 2 does not divide the world of 3 ranks"));
  EXPECT_THAT(
      message_of(6, {.tensor = 2, .sequence = 2}, Family::llama, 16),
      HasSubstr("zinc.mesh.sequence 2 x zinc.mesh.tensor 2 does not divide the world of 6"));
  EXPECT_THAT(message_of(2, two, Family::gpt2, 16),
              HasSubstr("transformer.h.0.attn: 3 heads with 3 heads of keys and values cannot be "
                        "shared by 2 ranks; take a zinc.mesh.sequence that divides both"));
  EXPECT_THAT(message_of(4, {.sequence = 4}, Family::llama, 16),
              HasSubstr("4 heads with 2 heads of keys and values"));
  EXPECT_THAT(message_of(4, {.tensor = 2, .sequence = 2}, Family::llama, 16),
              HasSubstr("2 heads with 1 heads of keys and values of a tensor rank"));
  EXPECT_THAT(message_of(2, two, Family::llama, 15),
              HasSubstr("zinc.mesh.sequence: 2 ranks cannot share sequences of 15 tokens"));
  EXPECT_THAT(
      message_of(2, two, Family::llama, 14, kKeys),
      HasSubstr("zinc.mesh.sequence: 2 ranks that keep their queries cannot share sequences of "
                "14 tokens; take a length that 4 divides"));
  EXPECT_THAT(message_of(2, two, Family::roberta, 16),
              HasSubstr("ranks cannot share the sequences of a roberta"));
  EXPECT_THAT(message_of(2, two, Family::t5, 16),
              HasSubstr("ranks cannot share the sequences of a t5"));
}

}  // namespace sequence_training_test
}  // namespace zinc::zero
