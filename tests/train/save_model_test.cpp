#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <mutex>

#include "comm/local/local.h"
#include "core/error.h"
#include "hub/model.h"
#include "hub/model_folder.h"
#include "tests/files/scratch_folder.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "train/weights/save_model.h"

namespace zinc::train {
namespace save_model_test {

using zero::test::make_batch;
using zero::test::tiny_config;

constexpr int64_t kShardBytes = 16'000;  // several files for the tiny model

zero::EngineConfig config_of(int stage, DType dtype) {
  zero::EngineConfig config;
  config.batch.micro_batch = 2;
  config.precision.dtype = dtype;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 100;  // biases and norms are whole, weights sharded
  return config;
}

// One step of training with a frozen block, so that every kind of segment is there.
void train_and(int world_size, const zero::EngineConfig& config,
               const std::function<void(comm::World&, zero::Engine&)>& work) {
  comm::run_local_ranks(world_size, {.seed = 4, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    model.freeze("transformer.h.1.*");
    zero::Engine engine(model, config, world);
    engine.backward(engine.forward(make_batch(world.rank())));
    engine.step();
    work(world, engine);
  });
}

void train_and(int world_size, int stage, DType dtype,
               const std::function<void(comm::World&, zero::Engine&)>& work) {
  train_and(world_size, config_of(stage, dtype), work);
}

// Name and content of every file.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = files::read_whole_file(entry.path().string());
  }
  return files;
}

hub::ModelConfigFile model_config() { return {.config = tiny_config()}; }

// Saves from gathered parameters, on one rank.
void save_gathered(comm::World& world, zero::Engine& engine, const std::string& folder) {
  std::vector<files::TensorSpec> specs;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    specs.push_back(
        {.name = name, .dtype = engine.config().precision.dtype, .shape = parameter->shape()});
  }
  std::optional<hub::ModelFolderWriter> writer;
  if (world.is_main()) {
    writer.emplace(folder,
                   hub::model_config_json(model_config().config, engine.config().precision.dtype),
                   specs, hub::ModelFolderOptions{.max_shard_bytes = kShardBytes});
  }
  for (const files::TensorSpec& spec : specs) {
    const Tensor values = engine.parameter(spec.name);
    if (writer) writer->write(spec.name, 0, values.view().reshape(Shape{values.numel()}));
  }
  if (writer) writer->commit();
}

class SaveModel : public testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(SaveModel, ByAllRanks_GivesTheBytesThatOneRankWritesFromGatheredWeights) {
  const auto [world_size, dtype] = GetParam();
  std::map<std::string, std::string> first;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const files::ScratchFolder folder;
    train_and(world_size, stage, dtype, [&](comm::World& world, zero::Engine& engine) {
      save_gathered(world, engine, folder / "gathered");
      save_model(engine, model_config(), folder / "own", {.max_shard_bytes = kShardBytes});
    });
    EXPECT_THAT(folder.names(), testing::ElementsAre("gathered", "own"));
    const auto own = files_in(folder / "own");
    EXPECT_GT(own.size(), 5U);  // several shards, their index, config.json
    EXPECT_EQ(own, files_in(folder / "gathered"));
    if (stage == 0) first = own;
    EXPECT_EQ(own, first) << "not the bytes of stage 0";
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, SaveModel,
                         testing::Values(std::tuple(1, DType::bf16), std::tuple(3, DType::bf16),
                                         std::tuple(2, DType::f32), std::tuple(4, DType::f16)));

// Master weights come from host memory, or from the disk in the tiles that they are swapped in.
TEST(SaveModel, WithAnOffloadedOptimizer_GivesTheBytesOfStage0) {
  const offload::SwapFolder swap;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const files::ScratchFolder folder;
    const auto save = [&](const zero::EngineConfig& config, const std::string& name) {
      train_and(2, config, [&](comm::World&, zero::Engine& engine) {
        save_model(engine, model_config(), folder / name, {.max_shard_bytes = kShardBytes});
      });
      return files_in(folder / name);
    };
    const auto reference = save(config_of(0, dtype), "whole");
    for (const int stage : {1, 2, 3}) {
      for (const auto device : {zero::OffloadDevice::cpu, zero::OffloadDevice::nvme}) {
        SCOPED_TRACE(str("stage ", stage, " ", dtype, " on ", zero::name_of(device)));
        zero::EngineConfig config = config_of(stage, dtype);
        config.zero.offload_optimizer = {.device = device, .nvme_path = swap.path()};
        config.zero.sub_group_size = 3072;  // parameters begin inside of tiles
        config.aio.block_size = 4096;
        EXPECT_EQ(save(config, str(stage, zero::name_of(device))), reference);
      }
    }
  }
}

TEST(OwnWeights, AreOnOneRankEach_AndMoveNoWeight) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    std::mutex mutex;
    std::map<std::string, int64_t> elements;
    std::vector<int64_t> by_rank(3);
    train_and(3, stage, DType::bf16, [&](comm::World& world, zero::Engine& engine) {
      const int64_t sent = world.communicator().bytes_sent();
      const Allocator& allocator = world.context().allocator();
      const int64_t live = allocator.report().at(Tier::device).live;
      int64_t most = 0;
      engine.read_own(zero::Engine::Own::weights, [&](const zero::OwnPiece& piece) {
        most = std::max(most, allocator.report().at(Tier::device).live - live);
        const std::lock_guard lock(mutex);
        elements[piece.name] += piece.values.numel();
        by_rank[static_cast<size_t>(world.rank())] += piece.values.numel();
      });
      EXPECT_EQ(world.communicator().bytes_sent(), sent);
      // One staging buffer, as large as the largest part of a parameter that a rank has.
      EXPECT_LE(most, 24 * 96 * 4);
      EXPECT_GT(most, 0);
    });
    nn::Gpt2 model(tiny_config());
    for (const auto& [name, parameter] : model.named_parameters()) {
      EXPECT_EQ(elements[name], parameter->numel()) << name;
    }
    for (const int64_t part : by_rank) EXPECT_GT(part, model.num_parameters() / 10);
  }
}

// A file that is named alone is copied alone, under a name by which it is found again.
TEST(TokenizerFiles, OfOneFile_AreThatFile) {
  const files::ScratchFolder folder;
  for (const char* name : {"mine.json", "spiece.model", "vocab.json", "merges.txt"}) {
    folder.write(name, name);
  }
  using Files = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(hub::read_tokenizer_files(folder / "mine.json"),
            (Files{{"tokenizer.json", "mine.json"}}));
  EXPECT_EQ(hub::read_tokenizer_files(folder / "spiece.model"),
            (Files{{"spiece.model", "spiece.model"}}));
  EXPECT_EQ(hub::read_tokenizer_files(folder / "vocab.json"),
            (Files{{"vocab.json", "vocab.json"}, {"merges.txt", "merges.txt"}}));
  EXPECT_EQ(hub::read_tokenizer_files(folder.path()).size(), 3U);
}

TEST(SaveModel, OfDamagedWeights_IsRefusedByName_AndLeavesWhatWasThere) {
  const files::ScratchFolder folder;
  const std::string name = "transformer.h.2.mlp.c_fc.weight";
  std::vector<std::string> messages(2);
  train_and(2, 3, DType::f32, [&](comm::World& world, zero::Engine& engine) {
    save_model(engine, model_config(), folder / "best");
    const auto before = files_in(folder / "best");
    const Tensor values = engine.parameter(name);
    values.view().data_as<float>()[values.numel() - 1] = std::numeric_limits<float>::quiet_NaN();
    engine.set_parameter(name, values);
    try {
      save_model(engine, model_config(), folder / "best", {.replace = true});
    } catch (const PeerFailed&) {
      messages[static_cast<size_t>(world.rank())] = "peer";
    } catch (const NumericsError& error) {
      messages[static_cast<size_t>(world.rank())] = error.what();
    }
    EXPECT_EQ(files_in(folder / "best"), before);
    save_model(engine, model_config(), folder / "asked-for", {.allow_damaged = true});
  });
  // The rank that holds the value names it, the other one follows.
  EXPECT_THAT(messages, testing::UnorderedElementsAre(
                            "peer", str(folder / "best", ": weight ", 24 * 96 - 1, " of ", name,
                                        " is not finite: the weights are damaged and not saved")));
  EXPECT_THAT(folder.names(), testing::ElementsAre("asked-for", "best"));
}

// A rank whose files are not those of the others: as on a host that does not share the file system.
TEST(SaveModel, ThatFailsOnOneRank_LeavesNothingAndIsSaidByThatRank) {
  const files::ScratchFolder folder;
  std::vector<std::string> messages(3);
  train_and(3, 3, DType::bf16, [&](comm::World& world, zero::Engine& engine) {
    const int64_t bytes = world.rank() == 1 ? 2 * kShardBytes : kShardBytes;
    try {
      save_model(engine, model_config(), folder / "final", {.max_shard_bytes = bytes});
    } catch (const PeerFailed& error) {
      EXPECT_EQ(error.rank(), 1);
      messages[static_cast<size_t>(world.rank())] = "peer";
    } catch (const IoError& error) {
      messages[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(folder.names(), testing::IsEmpty());
  EXPECT_EQ(messages[0], "peer");
  EXPECT_EQ(messages[2], "peer");
  EXPECT_THAT(messages[1], testing::HasSubstr("all ranks need one shared file system"));
}

}  // namespace save_model_test
}  // namespace zinc::train
