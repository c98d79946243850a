// A program of one's own (zinc.h): a configuration means there what it means to `zinc train`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "core/trace.h"
#include "tests/files/scratch_folder.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "train/config/key.h"
#include "train/trace/trace_summary.h"
#include "zinc.h"

namespace zinc::train {
namespace program_test {

using testing::HasSubstr;

class OwnProgram : public testing::Test {
 protected:
  std::string file(const std::string& own, const std::string& more = "") const {
    // Ranks write files of their own: a path for every call.
    return folder_.write(
        str("ds", ++num_files_, ".json"),
        str(R"({"train_micro_batch_size_per_gpu": 2)", more, R"(, "zinc": {)", own, "}}"));
  }
  // `body` in a world that connect() was told `options` of.
  void in_world(int size, comm::ConnectOptions options,
                const std::function<void(World&)>& body) const {
    if (options.num_threads == 0) options.bind_threads = false;
    comm::run_local_ranks(size, options, body);
  }
  files::ScratchFolder folder_;
  mutable std::atomic<int> num_files_ = 0;
};

std::vector<float> first_weights(const Config& config, World& world) {
  nn::Gpt2 model(zero::test::tiny_config());
  Engine engine = initialize(model, config, world);
  return zero::test::weights_of(engine);
}

std::vector<float> weights_with_seed(uint64_t seed) {
  std::vector<float> weights;
  comm::run_local_ranks(1, {.seed = seed}, [&](World& world) {
    nn::Gpt2 model(zero::test::tiny_config());
    zero::EngineConfig config;
    config.batch.micro_batch = 2;
    zero::Engine engine(model, config, world);
    weights = zero::test::weights_of(engine);
  });
  return weights;
}

TEST_F(OwnProgram, SeedOfTheFile_IsThatOfTheWeights) {
  for (const uint64_t seed : {7, 8}) {
    in_world(1, {.seed = 3}, [&](World& world) {
      const Config config = load_config(file(str("\"seed\": ", seed)), world);
      EXPECT_TRUE(first_weights(config, world) == weights_with_seed(seed)) << seed;
      EXPECT_EQ(loader_options(config, world, 4).seed, seed);
    });
  }
  in_world(1, {}, [&](World& world) {
    const Config config = load_config(file(""), world);
    EXPECT_TRUE(first_weights(config, world) == weights_with_seed(1234)) << "the command's";
  });
  in_world(1, {.seed = 3}, [&](World& world) {
    const Config config = load_config(file(""), world);
    EXPECT_TRUE(first_weights(config, world) == weights_with_seed(3)) << "that of connect()";
    EXPECT_EQ(config.seed, 3u);
  });
}

TEST_F(OwnProgram, NumThreadsOfTheFile_AreThoseOfTheRank) {
  in_world(2, {}, [&](World& world) {
    const int before = world.context().num_threads();
    load_config(file("\"num_threads\": 3"), world);
    EXPECT_EQ(world.context().num_threads(), 3);
    load_config(file(""), world);
    EXPECT_EQ(world.context().num_threads(), before);
  });
  in_world(1, {.num_threads = 2}, [&](World& world) {
    EXPECT_EQ(load_config(file(""), world).num_threads, 2);
    EXPECT_EQ(world.context().num_threads(), 2);
  });
}

TEST_F(OwnProgram, DeviceMemoryLimitOfTheFile_Holds) {
  in_world(1, {}, [&](World& world) {
    const Config config = load_config(file(R"("device_memory_limit": "16KiB")"), world);
    nn::Gpt2 model(zero::test::tiny_config());
    EXPECT_THAT(files::message_of<OutOfMemory>([&] { initialize(model, config, world); }),
                HasSubstr("the limit is 16384 bytes"));
  });
}

TEST_F(OwnProgram, DeadlineOfTheFile_IsThatOfCollectives) {
  in_world(2, {}, [&](World& world) {
    load_config(file("\"comm_deadline_seconds\": 12.5"), world);
    EXPECT_EQ(world.communicator().deadline(), std::chrono::milliseconds(12'500));
  });
  in_world(2, {.deadline = std::chrono::seconds(9)}, [&](World& world) {
    load_config(file(""), world);
    EXPECT_EQ(world.communicator().deadline(), std::chrono::seconds(9));
  });
}

TEST_F(OwnProgram, TraceOfTheFile_HoldsTheStepsOfAllRanks) {
  const std::string path = folder_ / "trace.json";
  in_world(2, {}, [&](World& world) {
    const Config config = load_config(file(str("\"trace\": \"", path, "\"")), world);
    nn::Gpt2 model(zero::test::tiny_config());
    Engine engine = initialize(model, config, world);
    for (int64_t step = 0; step < 2; ++step) {
      engine.backward(engine.forward(zero::test::make_batch(2 * step + world.rank())));
      engine.step();
      EXPECT_THAT(files::read_whole_file(path), HasSubstr(str("step ", step + 1)));
    }
  });
  const std::string text = files::read_whole_file(path);
  EXPECT_THAT(text, HasSubstr("\"pid\":0"));
  EXPECT_THAT(text, HasSubstr("\"pid\":1"));
}

class Counting : public data::Dataset {
 public:
  int64_t num_samples() const override { return 64; }
  void read(int64_t index, data::Sample& sample) const override {
    for (int64_t i = 0; i < 8; ++i) {
      sample.tokens.push_back(static_cast<int32_t>((index + i) % 5));
      sample.labels.push_back(static_cast<int32_t>((index + i + 1) % 5));
    }
  }
  std::string describe() const override { return "counting"; }
};

// Two starts of a program with a run: one trace each, and that of the first stays.
TEST_F(OwnProgram, RunsOfAProgram_HaveOneTraceEach) {
  const std::string path = folder_ / "trace.json";
  std::string before;
  for (const std::string name : {"trace.json", "trace-2.json"}) {
    in_world(2, {}, [&](World& world) {
      const Config config = load_config(
          file(str("\"trace\": \"", path, "\", \"checkpoint\": {\"every\": 1}")), world);
      const Counting data;
      nn::Gpt2 model(zero::test::tiny_config());
      data::Loader loader(data, {.micro_batch = 2,
                                 .seq_len = 8,
                                 .seed = config.seed,
                                 .rank = world.rank(),
                                 .world = world.size()});
      zinc::train::Run run(world, config, {.out = folder_ / "run", .steps = 2, .resume = "auto"});
      run.set_steps(name == "trace.json" ? 2 : 3);
      run.begin();
      run.make_engine(model, loader);
      run.train(loader);
      run.end();
    });
    const TraceSummary summary = summarize_trace(folder_ / name);
    EXPECT_EQ(summary.steps.size(), name == "trace.json" ? 4U : 2U);
    const std::string text = files::read_whole_file(folder_ / name);
    EXPECT_EQ(text.find("\"version\":1", text.find("\"version\":1") + 1), std::string::npos);
    if (before.empty()) before = files::read_whole_file(path);
  }
  EXPECT_EQ(files::read_whole_file(path), before);
}

TEST_F(OwnProgram, WhatComesTooLate_IsAnError) {
  in_world(1, {.seed = 3}, [&](World& world) {
    const Tensor made = Tensor::zeros({4});
    EXPECT_THAT(files::message_of<ConfigError>([&] { load_config(file("\"seed\": 7"), world); }),
                HasSubstr("this rank's seed cannot be changed: tensors were made"));
    EXPECT_EQ(load_config(file("\"seed\": 3"), world).seed, 3u) << "nothing changes";
  });
  TraceRecorder recorder;
  in_world(1, {.trace = &recorder}, [&](World& world) {
    const std::string own = str("\"trace\": \"", folder_ / "t.json", "\"");
    EXPECT_THAT(files::message_of<ConfigError>([&] { load_config(file(own), world); }),
                HasSubstr("ConnectOptions::trace"));
  });
}

TEST_F(OwnProgram, TheMeshDividesTheWorld) {
  in_world(4, {}, [&](World& world) {
    const Config config = load_config(file(R"("mesh": {"tensor": 2})"), world);
    EXPECT_EQ(world.data().size(), 2);
    EXPECT_EQ(world.data().rank(), world.rank() / 2);
    ASSERT_NE(world.tensor(), nullptr);
    EXPECT_EQ(world.tensor()->rank(), world.rank() % 2);
    EXPECT_EQ(world.sequence(), nullptr);
    EXPECT_EQ(loader_options(config, world, 8).world, 2);
  });
}

TEST_F(OwnProgram, TheMeshHasThreeAxes) {
  in_world(8, {}, [&](World& world) {
    const Config config = load_config(file(R"("mesh": {"sequence": 2, "tensor": 2})"), world);
    EXPECT_EQ(world.data().size(), 2);
    EXPECT_EQ(world.data().rank(), world.rank() / 4);
    ASSERT_NE(world.sequence(), nullptr);
    EXPECT_EQ(world.sequence()->size(), 2);
    EXPECT_EQ(world.sequence()->rank(), world.rank() / 2 % 2);
    ASSERT_NE(world.tensor(), nullptr);
    EXPECT_EQ(world.tensor()->rank(), world.rank() % 2);
    EXPECT_EQ(world.shards().size(), 4);
    EXPECT_EQ(world.shards().rank(), world.rank() / 2);
    EXPECT_EQ(config.engine.batch.global_batch(config.data_ranks(8)), 4);
    EXPECT_EQ(world.mesh().describe(7), "rank 7 (data 1, sequence 1, tensor 1)");
  });
}

TEST_F(OwnProgram, RanksWithDifferentConfigurations_AreToldSo) {
  std::vector<std::string> words(2);
  in_world(2, {}, [&](World& world) {
    const std::string lr = world.is_main() ? "0.1" : "0.2";
    const std::string path =
        folder_.write(str("ds", world.rank(), ".json"),
                      str(R"({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW",
               "params": {"lr": )",
                          lr, "}}}"));
    const Config config = load_config(path, world);
    nn::Gpt2 model(zero::test::tiny_config());
    words[static_cast<size_t>(world.rank())] =
        files::message_of<ConfigError>([&] { initialize(model, config, world); });
  });
  EXPECT_THAT(words[0], HasSubstr("configuration"));
  EXPECT_EQ(words[0], words[1]);
}

TEST_F(OwnProgram, TheMeshHasAPipeAxis) {
  in_world(8, {}, [&](World& world) {
    const Config config = load_config(file(R"("mesh": {"pipe": 2, "tensor": 2})"), world);
    EXPECT_EQ(config.engine.pipeline.ranks, 2);
    EXPECT_EQ(world.data().size(), 2);
    EXPECT_EQ(world.data().rank(), world.rank() / 4);
    ASSERT_NE(world.pipe(), nullptr);
    EXPECT_EQ(world.pipe()->size(), 2);
    EXPECT_EQ(world.pipe()->rank(), world.rank() / 2 % 2);
    EXPECT_EQ(world.tensor()->rank(), world.rank() % 2);
    EXPECT_EQ(world.shards().size(), 2);
    EXPECT_EQ(world.shards().rank(), world.rank() / 4);
    EXPECT_EQ(world.mesh().describe(6), "rank 6 (data 1, pipe 1, tensor 0)");
  });
}

// The keys that the tests above do not name reach the engine.
TEST_F(OwnProgram, EveryZincKey_Arrives) {
  const std::map<std::string, std::string> of_the_rank{{"zinc.seed", ""},
                                                       {"zinc.num_threads", ""},
                                                       {"zinc.device_memory_limit", ""},
                                                       {"zinc.comm_deadline_seconds", ""},
                                                       {"zinc.trace", ""},
                                                       {"zinc.mesh", ""},
                                                       {"zinc.mesh.tensor", ""},
                                                       {"zinc.mesh.sequence", ""},
                                                       {"zinc.mesh.pipe", ""},
                                                       {"zinc.checkpoint", ""},
                                                       {"zinc.checkpoint.every", ""},
                                                       {"zinc.checkpoint.minutes", ""},
                                                       {"zinc.checkpoint.keep", ""},
                                                       {"zinc.checkpoint.asynchronous", ""},
                                                       {"zinc.checkpoint.required", ""}};
  const std::string states = R"(, "zero_optimization": {"stage": 1, "offload_optimizer": )";
  struct Row {
    std::string own;
    std::string more = "";
    std::string without = "";
  };
  const std::string inputs = R"("recompute_every_blocks": 1, "activation_offload": {"device": )";
  const std::string pipe = R"("mesh": {"pipe": 2})";
  const std::string muon = R"(, "optimizer": {"type": "Muon"})";
  const std::map<std::string, Row> rows{
      {"zinc.determinism", {R"("determinism": "world")"}},
      {"zinc.reduce_schedule", {R"("reduce_schedule": "micro_step")"}},
      {"zinc.schedule", {R"("schedule": "vertical")"}},
      {"zinc.pipeline_schedule", {R"("pipeline_schedule": "gpipe")"}},
      {"zinc.pipeline_interleave",
       {R"("pipeline_interleave": 2, )" + pipe, R"(, "gradient_accumulation_steps": 2)", pipe}},
      {"zinc.pipeline_pattern", {R"("pipeline_pattern": "*.attn.*")"}},
      {"zinc.tensor_sequence_parallel",
       {R"("tensor_sequence_parallel": true, "mesh": {"tensor": 2})", "",
        R"("mesh": {"tensor": 2})"}},
      {"zinc.sequence_exchange",
       {R"("sequence_exchange": "keys", "mesh": {"sequence": 2})", "",
        R"("mesh": {"sequence": 2})"}},
      {"zinc.offload_step", {R"("offload_step": "device")", states + R"({"device": "cpu"}})"}},
      {"zinc.gradient_offload",
       {R"("gradient_offload": "nvme")", states + R"({"device": "nvme", "nvme_path": "/d"}})"}},
      {"zinc.moments", {R"("moments": "bf16")"}},
      {"zinc.muon", {R"("muon": {"products": "f32"})", muon}},
      {"zinc.muon.products", {R"("muon": {"products": "f32"})", muon}},
      {"zinc.muon.exclude", {R"("muon": {"exclude": ["*.attn.*"]})", muon}},
      {"zinc.fp8", {R"("fp8": true)", R"(, "bf16": {"enabled": true})"}},
      {"zinc.narrow_logits", {R"("narrow_logits": true)"}},
      {"zinc.wgmma", {R"("wgmma": "always")"}},
      {"zinc.reduce_algorithm", {R"("reduce_algorithm": "native")"}},
      {"zinc.loss_reduction", {R"("loss_reduction": "micro_batch")"}},
      {"zinc.recompute_every_blocks", {R"("recompute_every_blocks": 1)"}},
      {"zinc.recompute_blocks", {R"("recompute_blocks": 1)"}},
      {"zinc.selective_recompute", {R"("selective_recompute": true)"}},
      {"zinc.resident_memory", {R"("resident_memory": "1MiB")"}},
      {"zinc.activation_offload", {inputs + R"("cpu"})", "", R"("recompute_every_blocks": 1)"}},
      {"zinc.activation_offload.device",
       {inputs + R"("cpu"})", "", R"("recompute_every_blocks": 1)"}},
      {"zinc.activation_offload.nvme_path",
       {inputs + R"("nvme", "nvme_path": "/a"})", "", inputs + R"("nvme", "nvme_path": "/b"})"}},
      {"zinc.activation_offload.buffer_count",
       {inputs + R"("nvme", "nvme_path": "/a", "buffer_count": 7})", "",
        inputs + R"("nvme", "nvme_path": "/a"})"}},
      {"zinc.max_consecutive_skips", {R"("max_consecutive_skips": 7)"}},
      {"zinc.label_smoothing_factor", {R"("label_smoothing_factor": 0.1)"}},
      {"zinc.cuda_graph", {R"("cuda_graph": true)"}},
      {"zinc.overlap_update", {R"("overlap_update": false)"}},
      {"zinc.verify_swap", {R"("verify_swap": false)"}},
  };
  in_world(2, {}, [&](World& world) {
    for (const Key& key : config_keys()) {
      const std::string path(key.path);
      if (!path.starts_with("zinc.") || of_the_rank.contains(path)) continue;
      const auto row = rows.find(path);
      if (row == rows.end()) {
        ADD_FAILURE() << path << " has no row in this test";
        continue;
      }
      const auto& [own, more, without] = row->second;
      EXPECT_NE(resolved_json(load_config(file(own, more), world), 2),
                resolved_json(load_config(file(without, more), world), 2))
          << path;
    }
  });
}

}  // namespace program_test
}  // namespace zinc::train
