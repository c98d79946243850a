// zinc train with layers in slices and sequences in parts: what one rank gives, and a run that goes
// on with another mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/exit_codes.h"
#include "files/file_descriptor.h"
#include "files/json/parser.h"
#include "tests/apps/command_process.h"
#include "tests/apps/training_folder.h"

namespace zinc::apps {
namespace mesh_test {

using files::read_whole_file;
using testing::HasSubstr;

std::string config_of(int tensor, int64_t accumulation, int sequence = 1, int pipe = 1,
                      const std::string& more = "") {
  return R"({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "gradient_accumulation_steps": )" +
         std::to_string(accumulation) +
         R"(, "zero_optimization": {"stage": 1}, "gradient_clipping": 0.5, "steps_per_print": 1,
    "zinc": {"mesh": {"tensor": )" +
         std::to_string(tensor) + R"(, "sequence": )" + std::to_string(sequence) + R"(, "pipe": )" +
         std::to_string(pipe) + "}" + more + "}}";
}

// Losses of steps, then of evaluations.
std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  const std::string lines = read_whole_file(run + "/metrics.jsonl");
  for (size_t begin = 0, end = 0; (end = lines.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const auto line = files::json::parse(lines.substr(begin, end - begin), "metrics.jsonl");
    for (const char* key : {"loss", "grad_norm", "val_loss", "tokens"}) {
      if (const auto* value = line.find(key)) losses.push_back(value->as_double());
    }
  }
  return losses;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  // Eight updates whose f32 sums have another order.
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-4 * std::abs(b[i])) << i;
}

// Runs of eight steps, with checkpoints after the fourth and the last.
class TrainOnAMesh : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_mpirun()) GTEST_SKIP() << "needs mpirun";
  }
  std::string run(const std::string& config, const std::string& out, int ranks,
                  const std::vector<std::string>& more = {}) {
    std::vector<std::string> changes{
        "--config", folder_ / config, "--out", folder_ / out,  "--steps",
        "8",        "--eval-every",   "4",     "--save-every", "4"};
    changes.insert(changes.end(), more.begin(), more.end());
    // Leaks are looked for in the job with the most ranks.
    const Ended ended =
        run_zinc(folder_.train(changes), {.ranks = ranks, .find_leaks = out == "four"});
    EXPECT_EQ(ended.exit_code, 0) << to_string(ended);
    return ended.out;
  }
  // Two ranks and one go on from each other's checkpoint, with the losses of "one".
  void expect_each_goes_on_from_the_other() {
    run("one.json", "after_two", 1, {"--resume", folder_ / "two/checkpoints/step-000004"});
    run("two.json", "after_one", 2, {"--resume", folder_ / "one/checkpoints/step-000004"});
    const std::vector<double> whole = losses_of(folder_ / "one");
    for (const char* out : {"after_two", "after_one"}) {
      const std::vector<double> rest = losses_of(folder_ / out);
      ASSERT_LE(rest.size(), whole.size());
      expect_near(rest, {whole.end() - static_cast<int64_t>(rest.size()), whole.end()});
    }
  }
  const TrainingFolder folder_;
};

TEST_F(TrainOnAMesh, SharedLayers_GiveWhatOneRankGives_AndGoOnWithAnother) {
  folder_.write("model.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16,
    "n_embd": 32, "n_layer": 2, "n_head": 2, "resid_pdrop": 0.1, "attn_pdrop": 0.0, "embd_pdrop": 0.1})");
  folder_.write("one.json", config_of(1, 2));
  folder_.write("two.json", config_of(2, 2));

  folder_.write("four.json", config_of(2, 1));
  run("one.json", "one", 1);
  EXPECT_THAT(run("two.json", "two", 2), HasSubstr("2 = 1 data x 2 tensor"));
  run("four.json", "four", 4);
  expect_near(losses_of(folder_ / "two"), losses_of(folder_ / "one"));
  expect_near(losses_of(folder_ / "four"), losses_of(folder_ / "one"));
  expect_each_goes_on_from_the_other();
  const Ended verified =
      run_zinc({"checkpoint", "verify", folder_ / "four/checkpoints/step-000008"});
  EXPECT_EQ(verified.exit_code, 0) << to_string(verified);
}

TEST_F(TrainOnAMesh, SharedSequences_GiveWhatOneRankGives_AndGoOnWithAnother) {
  folder_.write("model.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16,
    "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0})");
  folder_.write("one.json", config_of(1, 2));
  folder_.write("two.json", config_of(1, 2, 2));
  folder_.write("four.json", config_of(2, 2, 2));
  folder_.write("ring.json", config_of(1, 2, 4, 1, R"(, "sequence_exchange": "ring")"));
  folder_.write("tokens.json", config_of(4, 2, 1, 1, R"(, "tensor_sequence_parallel": true)"));
  run("one.json", "one", 1);
  EXPECT_THAT(run("two.json", "two", 2), HasSubstr("2 = 1 data x 2 sequence"));
  EXPECT_THAT(run("four.json", "four", 4), HasSubstr("4 = 1 data x 2 sequence x 2 tensor"));
  for (const char* way : {"ring", "tokens"}) {
    run(str(way, ".json"), way, 4);
    expect_near(losses_of(folder_ / way), losses_of(folder_ / "one"));
  }
  expect_near(losses_of(folder_ / "two"), losses_of(folder_ / "one"));
  expect_near(losses_of(folder_ / "four"), losses_of(folder_ / "one"));
  expect_each_goes_on_from_the_other();
}

// Losses are equal to the bit where only ranks of a pipeline are added.
TEST_F(TrainOnAMesh, DealtOutLayers_GiveWhatOneRankGives_AndGoOnWithAnother) {
  folder_.write("model.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16,
    "n_embd": 32, "n_layer": 3, "n_head": 2, "resid_pdrop": 0.1, "attn_pdrop": 0.0, "embd_pdrop": 0.1,
    "tie_word_embeddings": false})");
  folder_.write("one.json", config_of(1, 3));
  folder_.write("two.json", config_of(1, 3, 1, 2));
  folder_.write("four.json", config_of(2, 3, 1, 2));
  run("one.json", "one", 1);
  EXPECT_THAT(run("two.json", "two", 2), HasSubstr("2 = 1 data x 2 pipe"));
  EXPECT_THAT(run("four.json", "four", 4), HasSubstr("4 = 1 data x 2 pipe x 2 tensor"));
  EXPECT_EQ(losses_of(folder_ / "two"), losses_of(folder_ / "one"));
  EXPECT_EQ(read_whole_file(folder_ / "two/final/model.safetensors"),
            read_whole_file(folder_ / "one/final/model.safetensors"));
  expect_near(losses_of(folder_ / "four"), losses_of(folder_ / "one"));
  expect_each_goes_on_from_the_other();
}

TEST_F(TrainOnAMesh, OtherOrdersOfAPipeline_GiveWhatOneRankGives_AndGoOnWithAnother) {
  folder_.write("model.json", R"({"model_type": "gpt2", "vocab_size": 256, "n_positions": 16,
    "n_embd": 32, "n_layer": 4, "n_head": 2, "resid_pdrop": 0.1, "attn_pdrop": 0.0, "embd_pdrop": 0.1,
    "tie_word_embeddings": false})");
  folder_.write("one.json", config_of(1, 4));
  run("one.json", "one", 1);
  const std::string interleaved = R"(, "pipeline_interleave": 2)";
  const std::string split = R"(, "pipeline_schedule": "zb-h1")";
  for (const std::string& order : {interleaved, split}) {
    folder_.write("two.json", config_of(1, 4, 1, 2, order));
    run("two.json", "two", 2);
    EXPECT_EQ(losses_of(folder_ / "two"), losses_of(folder_ / "one")) << order;
    EXPECT_EQ(read_whole_file(folder_ / "two/final/model.safetensors"),
              read_whole_file(folder_ / "one/final/model.safetensors"));
    expect_each_goes_on_from_the_other();
    for (const char* out : {"two", "after_two", "after_one"}) {
      std::filesystem::remove_all(folder_ / out);
    }
  }
}

TEST(MeshErrors, WhatDoesNotFit_IsRefused) {
  const TrainingFolder folder;
  const auto refused = [&](const std::string& config, const std::string& words) {
    folder.write("ds.json", config);
    const Ended ended = run_zinc(folder.train());
    EXPECT_EQ(ended.exit_code, kConfiguration) << to_string(ended);
    EXPECT_THAT(ended.err, HasSubstr(words));
  };
  refused(config_of(2, 1), "zinc.mesh.tensor 2 does not divide the world of 1 ranks");
  refused(config_of(0, 1), "mesh.tensor");
  refused(R"({"train_micro_batch_size_per_gpu": 2, "tensor_parallel": {"autotp_size": 4},
              "zinc": {"mesh": {"tensor": 2}}})",
          "contradicts tensor_parallel.autotp_size 4");
  refused(R"({"train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": 4,
              "zinc": {"mesh": {"sequence": 2}}})",
          "zinc.mesh.sequence 2 contradicts sequence_parallel_size 4");
  refused(config_of(1, 1, 2), "zinc.mesh.sequence 2 does not divide the world of 1 ranks");
  refused(config_of(1, 1, 1, 2), "zinc.mesh.pipe 2 does not divide the world of 1 ranks");
  refused(R"({"train_micro_batch_size_per_gpu": 2, "pipeline": {"stages": 4},
              "zinc": {"mesh": {"pipe": 2}}})",
          "zinc.mesh.pipe 2 contradicts pipeline.stages 4");
  refused(config_of(1, 2, 1, 1, R"(, "pipeline_interleave": 2)"),
          "zinc.pipeline_interleave 2 is for ranks of a pipeline, and there are none");
}

}  // namespace mesh_test
}  // namespace zinc::apps
