// A run of a program of one's own: what it leaves in its folder, and one failure for all ranks.
#include "train/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "files/atomic_file.h"
#include "files/json/parser.h"
#include "hub/weight_folder.h"
#include "nn/models/gpt2.h"
#include "tests/files/file_system_faults.h"
#include "tests/files/scratch_folder.h"

namespace zinc::train {
namespace run_test {

constexpr int kWorld = 2;

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

nn::Gpt2Config model_config() {
  nn::Gpt2Config config;
  config.vocab_size = 5;
  config.max_positions = 8;
  config.hidden_size = 16;
  config.num_layers = 2;
  config.num_heads = 2;
  return config;
}

struct Outcome {
  std::string error;  // of the rank; empty: none
  bool together = false;
};

// Trains, and returns the outcomes of all ranks.
std::vector<Outcome> train(const std::string& out, bool force = false) {
  std::vector<Outcome> outcomes(kWorld);
  comm::run_local_ranks(kWorld, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
    Config config;
    config.engine.batch = {.micro_batch = 2, .sequence = 8};
    config.engine.zero.stage = 2;
    const Counting data;
    nn::Gpt2 model(model_config());
    data::Loader loader(
        data,
        {.micro_batch = 2, .seq_len = 8, .seed = 3, .rank = world.rank(), .world = world.size()});
    const data::EvaluationSet evaluation(
        data, {.batch = 2, .seq_len = 8, .rank = world.rank(), .world = world.size()});
    zinc::train::Run run(world, config,
                         {.out = out, .force = force, .steps = 4, .export_every = 2});
    Outcome& mine = outcomes[static_cast<size_t>(world.rank())];
    try {
      run.begin();
      run.make_engine(model);
      const TrainResult result = run.train(loader, &evaluation);
      run.end();
      EXPECT_EQ(result.steps, 4);
      EXPECT_TRUE(result.val_loss.has_value());
      EXPECT_EQ(run.last_saved(), "best");
    } catch (const std::exception& error) {
      mine = {error.what(), run.failed_together()};
    }
  });
  return outcomes;
}

int64_t num_lines(const std::string& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

TEST(Run, LeavesFiguresAndWeightsThatCanBeReadAgain) {
  const files::ScratchFolder folder;
  const std::string out = folder / "run";
  for (const Outcome& outcome : train(out)) EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(num_lines(out + "/metrics.jsonl"), 4);
  EXPECT_TRUE(std::filesystem::exists(out + "/config.resolved.json"));
  for (const char* const name : {"step-000002", "best", "final"}) {
    const std::string saved = out + "/" + name;
    const files::json::Value config = files::json::parse_file(saved + "/config.json");
    EXPECT_EQ(config.at("model_type").as_string(), "gpt2");
    EXPECT_EQ(config.at("dtype").as_string(), "float32");
    EXPECT_NO_THROW(hub::WeightFolder::open(saved)) << name;
  }
}

TEST(Run, ThatFailsOnOneRankFailsOnAllAndLeavesWhatWasThere) {
  const files::ScratchFolder folder;
  const std::string out = folder / "run";
  train(out);
  const std::vector<Outcome> again = train(out);
  EXPECT_NE(again[0].error.find(out), std::string::npos) << again[0].error;
  EXPECT_NE(again[1].error.find("rank 0"), std::string::npos) << again[1].error;
  for (const Outcome& outcome : again) EXPECT_TRUE(outcome.together);
  EXPECT_EQ(num_lines(out + "/metrics.jsonl"), 4);
  for (const Outcome& outcome : train(out, true)) EXPECT_EQ(outcome.error, "");
}

class Saves : public TrainerObserver {
 public:
  void on_save(const SavedFiles& files) override {
    all.push_back(str(files::file_name(files.path), files.is_checkpoint ? " checkpoint" : "",
                      " of ", files.step));
  }
  std::vector<std::string> all;
};

// Greater is better: the first evaluation, of four, is the best.
TEST(Run, LoadsTheBestWeightsAtTheEnd_OnEveryStageAndTier) {
  using zero::OffloadDevice;
  const std::pair<int, OffloadDevice> placements[] = {{0, OffloadDevice::none},
                                                      {2, OffloadDevice::none},
                                                      {3, OffloadDevice::none},
                                                      {3, OffloadDevice::nvme}};
  for (const auto& [stage, device] : placements) {
    SCOPED_TRACE(str("stage ", stage, device == OffloadDevice::nvme ? ", on NVMe" : ""));
    const files::ScratchFolder folder;
    const std::string out = folder / "run";
    comm::run_local_ranks(kWorld, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
      Config config;
      config.engine.batch = {.micro_batch = 2, .sequence = 8};
      config.engine.zero.stage = stage;
      if (device != OffloadDevice::none) {
        config.engine.zero.offload_param = {.device = device, .nvme_path = folder.path()};
        config.engine.zero.offload_optimizer = {.device = device, .nvme_path = folder.path()};
      }
      config.engine.precision.dtype = DType::bf16;
      config.engine.optimizer.hyper.lr = 1e-2;
      config.checkpoint = {.every = 3, .asynchronous = false};
      const Counting data;
      nn::Gpt2 model(model_config());
      Loader loader(
          data,
          {.micro_batch = 2, .seq_len = 8, .seed = 3, .rank = world.rank(), .world = world.size()});
      const EvaluationSet evaluation(
          data, {.batch = 2, .seq_len = 8, .rank = world.rank(), .world = world.size()});
      zinc::train::Run run(world, config,
                           {.out = out,
                            .steps = 4,
                            .eval_every = 1,
                            .best = {.greater_is_better = true, .load_at_end = true},
                            .export_every = 2});
      Saves saves;
      run.begin();
      zero::Engine& engine = run.make_engine(model);
      const TrainResult result = run.train(loader, &evaluation, &saves);
      run.end();
      EXPECT_EQ(result.best.step, 1);
      EXPECT_TRUE(result.loaded_best);
      EXPECT_EQ(run.last_saved(), "final");
      EXPECT_EQ(saves.all, (std::vector<std::string>{"best of 1", "step-000002 of 2",
                                                     "step-000003 checkpoint of 3", "final of 4",
                                                     "step-000004 checkpoint of 4", "final of 4"}));
      zero::Evaluation now;
      for (int64_t round = 0; round < evaluation.num_rounds(); ++round) {
        for (const zero::Evaluation& part :
             gather(engine, engine.evaluate(evaluation.batch(round)))) {
          now += part;
        }
      }
      EXPECT_EQ(now.mean(), result.best.value);
    });
    const auto weights = [&](const char* name) {
      return files::read_whole_file(str(out, '/', name, "/model.safetensors"));
    };
    EXPECT_EQ(weights("final"), weights("best"));
    EXPECT_NE(weights("final"), weights("step-000002"));
  }
}

// At every instant from the first checkpoint on there is one.
TEST(Run, DeletesAnOldCheckpointWhenTheNextIsThere) {
  for (const bool beside : {true, false}) {
    const files::ScratchFolder folder;
    files::FileSystemRecord record;
    comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
      Config config;
      config.engine.batch = {.micro_batch = 2, .sequence = 8};
      config.checkpoint = {.every = 1, .keep = 1, .asynchronous = beside};
      const Counting data;
      nn::Gpt2 model(model_config());
      data::Loader loader(data, {.micro_batch = 2, .seq_len = 8, .seed = 3});
      zinc::train::Run run(world, config, {.out = folder / "run", .steps = 4});
      run.begin();
      run.make_engine(model);
      run.train(loader);
      run.end();
    });
    std::set<std::string> there;
    int saved = 0;
    for (const files::FileSystemChange& change : record.take()) {
      const auto is_checkpoint = [](const std::string& path) {
        return path.find("/checkpoints/step-") != std::string::npos;
      };
      if (change.kind == files::FileSystemChange::rename && is_checkpoint(change.to)) {
        there.insert(change.to);
        ++saved;
      } else if (there.erase(change.path) > 0) {
        EXPECT_FALSE(there.empty()) << change.path << " went, written beside: " << beside;
      }
    }
    EXPECT_EQ(saved, 4);
    EXPECT_EQ(there.size(), 1U);
  }
}

TEST(Run, NeedsAFolderAndSteps) {
  comm::run_local_ranks(1, {.seed = 3, .num_threads = 1}, [&](comm::World& world) {
    const Config config;
    EXPECT_THROW(zinc::train::Run(world, config, {.out = "", .steps = 4}), InvalidArgument);
    zinc::train::Run run(world, config, {.out = "somewhere"});
    nn::Gpt2 model(model_config());
    EXPECT_THROW(run.make_engine(model), InvalidArgument);
  });
}

}  // namespace run_test
}  // namespace zinc::train
