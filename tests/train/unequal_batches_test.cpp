// The trained weights do not depend on how examples are padded or packed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "data/examples/example_data.h"
#include "data/loader.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "tests/files/scratch_folder.h"
#include "zero/engine.h"

namespace zinc::train {
namespace unequal_batches_test {

constexpr int64_t kRoom = 48;  // tokens of the longest row

std::unique_ptr<nn::Model> make_model(bool llama) {
  if (llama) {
    nn::LlamaConfig config;
    config.vocab_size = 256;
    config.max_positions = kRoom;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    config.num_layers = 3;
    config.num_heads = 4;
    return std::make_unique<nn::Llama>(config);
  }
  nn::Gpt2Config config;
  config.vocab_size = 256;
  config.max_positions = kRoom;
  config.hidden_size = 32;
  config.num_layers = 3;
  config.num_heads = 2;
  return std::make_unique<nn::Gpt2>(config);
}

class UnequalBatches : public testing::Test {
 protected:
  // Sixty prompts with answers of 4 to 40 bytes in all.
  data::ExampleData examples() const {
    std::string content;
    for (size_t i = 0; i < 60; ++i) {
      content +=
          str(R"({"p": ")", std::string(1 + i * 7 % 19, static_cast<char>('a' + i % 7)),
              R"(", "a": ")", std::string(1 + i * 5 % 17, static_cast<char>('k' + i % 5)), "\"}\n");
    }
    const std::string path = folder_.write("e.jsonl", content);
    const text::ByteTokenizer bytes;
    const std::string made = data::make_example_folder(
        path, &bytes, {.fields = {.prompt = "p", .answer = "a"}, .max_tokens = kRoom},
        {.cache = folder_ / "cache"});
    return data::ExampleData(
        {std::make_shared<const data::ExampleFile>(data::ExampleFile::open(made, path))});
  }
  files::ScratchFolder folder_;
};

// Losses of ten steps, all ranks.
std::vector<double> train(const data::Dataset& data, int64_t pad_multiple, int world_size,
                          bool llama, const std::function<void(zero::EngineConfig&)>& change) {
  std::vector<double> losses;
  comm::run_local_ranks(world_size, {.seed = 1, .num_threads = 1}, [&](comm::World& world) {
    const std::unique_ptr<nn::Model> model = make_model(llama);
    zero::EngineConfig config;
    config.batch = {.micro_batch = 2, .accumulation = 2, .sequence = kRoom};
    config.optimizer.hyper.lr = 4e-3;
    change(config);
    zero::Engine engine(*model, config, world);
    data::Loader loader(data, {.micro_batch = 2,
                               .seq_len = kRoom,
                               .pad_multiple = pad_multiple,
                               .group_by_length = true,
                               .seed = 5,
                               .rank = world.rank(),
                               .world = world.size()});
    while (engine.state().steps < 10) {
      std::vector<nn::Batch> batches;
      for (int64_t i = 0; i < engine.config().batches_together(); ++i) {
        batches.push_back(loader.next());
      }
      engine.run_passes(batches);
      const zero::StepResult step = engine.step();
      if (step.outcome == zero::StepOutcome::applied && world.rank() == 0) {
        losses.push_back(step.loss);
      }
    }
  });
  return losses;
}

// Sums over padding add zeros, but matrix products of other sizes may add in another order: a few
// units of f32's last place, which ten steps make grow.
constexpr double kTolerance = 1e-4;

struct RunOf {
  const char* name;
  int world;
  bool llama;
  std::function<void(zero::EngineConfig&)> change;
};

class PaddingOf : public UnequalBatches, public testing::WithParamInterface<RunOf> {};

TEST_P(PaddingOf, Batches_DoesNotChangeTheLosses) {
  const RunOf& run = GetParam();
  const data::ExampleData data = examples();
  const auto longest = train(data, 0, run.world, run.llama, run.change);
  const auto short_ones = train(data, 8, run.world, run.llama, run.change);
  ASSERT_EQ(longest.size(), 10U);
  ASSERT_EQ(short_ones.size(), 10U);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(longest[i], short_ones[i], kTolerance) << "step " << i;
  EXPECT_LT(longest.back(), longest.front());
}

INSTANTIATE_TEST_SUITE_P(Setups, PaddingOf,
                         testing::Values(RunOf{"gpt2", 1, false, [](zero::EngineConfig&) {}},
                                         RunOf{"llama_stage3_of_three", 3, true,
                                               [](auto& config) { config.zero.stage = 3; }},
                                         RunOf{"vertical", 2, false,
                                               [](auto& config) {
                                                 config.zero.stage = 3;
                                                 config.pass_order = zero::PassOrder::vertical;
                                               }},
                                         RunOf{"recomputed_in_one_allocation", 2, true,
                                               [](auto& config) {
                                                 config.zero.stage = 2;
                                                 config.recompute.every_blocks = 1;
                                                 config.recompute.contiguous_memory_optimization =
                                                     true;
                                               }},
                                         RunOf{"saved_inputs_in_host_memory", 1, false,
                                               [](auto& config) {
                                                 config.recompute.every_blocks = 1;
                                                 config.recompute.cpu_checkpointing = true;
                                               }}),
                         [](const auto& param) { return std::string(param.param.name); });

double evaluate(const data::Dataset& data, bool llama, int64_t pad_multiple) {
  double mean = 0.0;
  comm::run_local_ranks(1, {.seed = 1, .num_threads = 1}, [&](comm::World& world) {
    const std::unique_ptr<nn::Model> model = make_model(llama);
    zero::EngineConfig config;
    config.batch = {.micro_batch = 4, .sequence = kRoom};
    zero::Engine engine(*model, config, world);
    const data::EvaluationSet set(data,
                                  {.batch = 4, .seq_len = kRoom, .pad_multiple = pad_multiple});
    zero::Evaluation total;
    for (int64_t round = 0; round < set.num_rounds(); ++round) {
      total += engine.evaluate(set.batch(round));
    }
    mean = total.mean();
  });
  return mean;
}

// Each example's loss is its own, whatever stands beside it in a row. Neighbours that were seen
// would change the mean in its second digit. Llama's rotary positions are distances; the learned
// ones of GPT-2 begin anew.
TEST_F(UnequalBatches, Packed_ExamplesHaveTheLossOfEachAlone) {
  const data::ExampleData data = examples();
  const data::PackedExamples packed(data, kRoom);
  ASSERT_LT(packed.num_samples(), data.num_samples() * 3 / 5);
  for (const bool llama : {true, false}) {
    SCOPED_TRACE(llama);
    const double alone = evaluate(data, llama, 8);
    EXPECT_NEAR(evaluate(packed, llama, 0), alone, 1e-5);
    EXPECT_NEAR(evaluate(data, llama, 0), alone, 1e-5);
  }
}

}  // namespace unequal_batches_test
}  // namespace zinc::train
