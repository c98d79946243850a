// Saving a checkpoint on a file system that fails, is cut off, or loses what was not synced: there
// is always one to go on from, and nothing in part is ever taken for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/gather_values.h"
#include "comm/local/local.h"
#include "core/error.h"
#include "nn/models/gpt2.h"
#include "tests/files/file_system_faults.h"
#include "tests/files/scratch_folder.h"
#include "tests/zero/tiny_model.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/save_checkpoint.h"

namespace zinc::train {
namespace checkpoint_faults_test {

using testing::ElementsAre;
using testing::HasSubstr;

// An engine after a step, alone in its world.
void with_engine(const std::function<void(zero::Engine&)>& work, int64_t vocab_size = 37) {
  comm::run_local_ranks(1, {.seed = 4, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2Config model_config;
    model_config.vocab_size = vocab_size;
    model_config.max_positions = 16;
    model_config.hidden_size = 8;
    model_config.num_layers = 1;
    model_config.num_heads = 2;
    nn::Gpt2 model(model_config);
    zero::EngineConfig config;
    config.batch.micro_batch = 2;
    zero::Engine engine(model, config, world);
    const auto step = [&] {
      engine.backward(engine.forward(zero::test::make_batch(engine.state().steps)));
      engine.step();
    };
    step();
    work(engine);
  });
}

// The vocabulary of a model whose states pass the page cache in several writes.
constexpr int64_t kLargeVocabulary = 60'000;

void step(zero::Engine& engine) {
  engine.backward(engine.forward(zero::test::make_batch(engine.state().steps)));
  engine.step();
}

// A run's work between two steps: a second checkpoint beside the first, which is then deleted.
void save_and_prune(zero::Engine& engine, const std::string& folder) {
  save_checkpoint(engine, folder);
  prune_checkpoints(folder, 1);
}

// The checkpoints that a start finds, newest first: every folder that is called a checkpoint is
// whole.
std::vector<int64_t> whole_after_cleaning(const std::string& folder) {
  clean_checkpoints(folder);
  std::vector<int64_t> steps;
  for (const FoundCheckpoint& found : find_checkpoints(folder)) {
    const Checkpoint checkpoint = Checkpoint::open(found.path);  // DataError fails the test
    checkpoint.verify();
    EXPECT_EQ(checkpoint.state().steps, found.step);
    steps.push_back(found.step);
  }
  return steps;
}

// Every call that a save makes fails once.
TEST(CheckpointFaults, EveryCallOfASaveFailsOnce_AndTheOneBeforeStays) {
  const std::map<files::FileSystemCall, std::vector<int>> errors{
      {files::FileSystemCall::create, {ENOSPC, EDQUOT, EROFS}},
      {files::FileSystemCall::write, {ENOSPC, EIO}},
      {files::FileSystemCall::sync, {EIO, ENOSPC}},
      {files::FileSystemCall::rename, {EIO, ENOSPC}}};
  int failures = 0;
  with_engine([&](zero::Engine& engine) {
    const files::ScratchFolder folder;
    save_checkpoint(engine, folder.path());
    step(engine);
    for (const auto& [call, numbers] : errors) {
      for (const int error : numbers) {
        for (int nth = 1;; ++nth) {
          bool ended = false;
          {
            const files::FileSystemFaults faults({{.call = call, .nth = nth, .error = error}});
            try {
              save_checkpoint(engine, folder.path());
              ended = files::FileSystemFaults::calls(call) < nth;
              // A call whose failure does no harm, as that of a rename that has another way.
            } catch (const IoError& io) {
              EXPECT_EQ(io.error_number(), error);
              ++failures;
            }
          }
          const std::vector<int64_t> steps = whole_after_cleaning(folder.path());
          ASSERT_FALSE(steps.empty());
          EXPECT_EQ(steps.back(), 1) << "call " << nth << " of kind " << static_cast<int>(call);
          std::filesystem::remove_all(folder / "step-000002");
          if (ended) break;
        }
      }
    }
  });
  EXPECT_GT(failures, 30);
}

// A write that is interrupted, or takes a half, is gone on with: in every place.
TEST(CheckpointFaults, WritesThatAreCutShortOrInterrupted_AreGoneOnWith) {
  with_engine(
      [](zero::Engine& engine) {
        for (const int error : {EINTR, files::FileSystemFaults::Fault::kShort}) {
          int nth = 1;
          for (bool ended = false; !ended; ++nth) {
            const files::ScratchFolder folder;
            {
              const files::FileSystemFaults faults(
                  {{.call = files::FileSystemCall::write, .nth = nth, .error = error}});
              save_checkpoint(engine, folder.path());
              ended = files::FileSystemFaults::calls(files::FileSystemCall::write) < nth;
            }
            EXPECT_THAT(whole_after_cleaning(folder.path()), ElementsAre(1)) << "write " << nth;
          }
          EXPECT_GT(nth, 6);
        }
      },
      kLargeVocabulary);
}

// A prune that fails leaves the newest, and a later one goes on with it.
TEST(CheckpointFaults, EveryCallOfAPruneFailsOnce_AndTheNewestStays) {
  with_engine([](zero::Engine& engine) {
    int failures = 0;
    for (const files::FileSystemCall call :
         {files::FileSystemCall::rename, files::FileSystemCall::sync,
          files::FileSystemCall::remove}) {
      for (int nth = 1;; ++nth) {
        const files::ScratchFolder folder;
        for (const std::string tag : {"step-000001", "step-000002"}) {
          save_checkpoint(engine, folder.path(), tag);
        }
        bool ended = false;
        {
          const files::FileSystemFaults faults({{.call = call, .nth = nth, .error = EIO}});
          try {
            prune_checkpoints(folder.path(), 1);
            ended = files::FileSystemFaults::calls(call) < nth;
          } catch (const IoError& error) {
            EXPECT_EQ(error.error_number(), EIO);
            ++failures;
          }
        }
        Checkpoint::open(folder / "step-000002").verify();
        clean_checkpoints(folder.path());
        prune_checkpoints(folder.path(), 1);
        EXPECT_THAT(folder.names(), ElementsAre("step-000002"));
        if (ended) break;
      }
    }
    EXPECT_GT(failures, 4);
  });
}

// A file system may open files for direct writes and then refuse them.
TEST(CheckpointFaults, WhereDirectWritesAreRefused_TheCacheTakesThem) {
  with_engine(
      [](zero::Engine& engine) {
        int saved = 0;
        for (int nth = 1; nth <= 8; ++nth) {
          const files::ScratchFolder folder;
          const files::FileSystemFaults faults(
              {{.call = files::FileSystemCall::write, .nth = nth, .error = EINVAL}});
          try {
            save_checkpoint(engine, folder.path());
            EXPECT_THAT(whole_after_cleaning(folder.path()), ElementsAre(1));
            ++saved;
          } catch (const IoError& error) {  // from a write through the cache
            EXPECT_EQ(error.error_number(), EINVAL);
          }
        }
        EXPECT_GT(saved, 0);
      },
      kLargeVocabulary);
}

// Checksums are those of the memory that is written, not of what a disk has made of it.
TEST(CheckpointFaults, ABitThatTurnsOnItsWayToTheDisk_IsFound) {
  with_engine(
      [](zero::Engine& engine) {
        int writes = 0;
        for (bool ended = false; !ended;) {
          const files::ScratchFolder folder;
          {
            const files::FileSystemFaults faults(
                {{.call = files::FileSystemCall::write, .nth = ++writes, .error = 0}});
            save_checkpoint(engine, folder.path());
            ended = files::FileSystemFaults::calls(files::FileSystemCall::write) < writes;
          }
          const auto look = [&] { Checkpoint::open(folder / "step-000001").verify(); };
          if (ended) {
            EXPECT_NO_THROW(look());
          } else {
            EXPECT_THROW(look(), DataError) << "write " << writes;
          }
        }
        EXPECT_GT(writes, 4);
      },
      kLargeVocabulary);
}

// --- loading

std::vector<float> weights_of(zero::Engine& engine) {
  std::vector<float> all;
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    const auto values = engine.parameter(name).to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Whether the engine can go on training. After an import that failed half-way it cannot.
bool trains_on(zero::Engine& engine) {
  try {
    engine.evaluate(zero::test::make_batch(0));
    return true;
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("import a whole one first"));
    EXPECT_THROW(engine.forward(zero::test::make_batch(0)), InvalidArgument);
    EXPECT_THROW(engine.read_own(zero::Engine::Own::weights, {}), InvalidArgument);
    return false;
  }
}

// Every call that a load makes fails once. The engine has what it had, or refuses to go on until it
// has all of a checkpoint.
TEST(CheckpointFaults, EveryCallOfALoadFailsOnce_AndNoMixtureIsTrainedOn) {
  using Call = files::FileSystemCall;
  int untouched = 0, refused = 0;
  with_engine([&](zero::Engine& engine) {
    const files::ScratchFolder old, wanted;
    save_checkpoint(engine, old.path());
    const std::vector<float> before = weights_of(engine);
    step(engine);
    save_checkpoint(engine, wanted.path());
    const std::vector<float> after = weights_of(engine);
    for (const auto& [call, error] : std::vector<std::pair<Call, int>>{
             {Call::open, EIO}, {Call::open, ENOENT}, {Call::size, EIO}, {Call::read, EIO}}) {
      for (int nth = 1;; ++nth) {
        SCOPED_TRACE(fmt::format("call {} of kind {}", nth, static_cast<int>(call)));
        load_checkpoint(engine, old.path());
        bool failed = true;
        {
          const files::FileSystemFaults faults({{.call = call, .nth = nth, .error = error}});
          try {
            load_checkpoint(engine, wanted.path());
            failed = false;
            ASSERT_LT(files::FileSystemFaults::calls(call), nth);
          } catch (const IoError& io) {
            EXPECT_EQ(io.error_number(), error);
            EXPECT_THAT(io.what(), HasSubstr(wanted.path()));
          } catch (const DataError& data) {  // a file that is not there
            EXPECT_EQ(error, ENOENT);
            EXPECT_THAT(data.what(), HasSubstr(wanted.path()));
          }
        }
        if (!failed) break;
        if (trains_on(engine)) {
          ++untouched;
          ASSERT_EQ(weights_of(engine), before);
          EXPECT_EQ(engine.state().steps, 1);
        } else {
          ++refused;
        }
      }
      ASSERT_EQ(weights_of(engine), after);
      EXPECT_TRUE(trains_on(engine));
    }
  });
  EXPECT_GT(untouched, 20);
  EXPECT_GT(refused, 20);
}

// One rank cannot read: none goes on.
TEST(CheckpointFaults, ALoadThatFailsOnOneRank_IsRefusedByAll) {
  comm::run_local_ranks(2, {.seed = 4, .num_threads = 1}, [&](comm::World& world) {
    nn::Gpt2 model(zero::test::tiny_config());
    zero::EngineConfig config;
    config.batch.micro_batch = 2;
    config.zero.stage = 2;
    zero::Engine engine(model, config, world);
    std::optional<files::ScratchFolder> own;
    if (world.is_main()) own.emplace();
    const std::string folder = comm::share_text(world, own ? own->path() : std::string());
    save_checkpoint(engine, folder);
    const Checkpoint checkpoint = open_checkpoint(world, folder);
    std::optional<files::FileSystemFaults> faults;
    if (world.is_main()) {
      faults.emplace(std::vector{files::FileSystemFaults::Fault{
          .call = files::FileSystemCall::read, .nth = 5, .error = EIO}});
    }
    comm::any_rank(world, false);  // from here on
    EXPECT_ANY_THROW(load_checkpoint(engine, checkpoint));
    comm::any_rank(world, false);
    faults.reset();
    EXPECT_FALSE(trains_on(engine));
    load_checkpoint(engine, checkpoint);
    EXPECT_TRUE(trains_on(engine));
  });
}

TEST(CheckpointFaults, ReadsThatAreCutShortOrInterrupted_AreGoneOnWith) {
  with_engine([](zero::Engine& engine) {
    const files::ScratchFolder folder;
    save_checkpoint(engine, folder.path());
    const std::vector<float> saved = weights_of(engine);
    for (const int error : {EINTR, files::FileSystemFaults::Fault::kShort}) {
      int nth = 1;
      for (bool ended = false; !ended; ++nth) {
        step(engine);
        const files::FileSystemFaults faults(
            {{.call = files::FileSystemCall::read, .nth = nth, .error = error}});
        load_checkpoint(engine, folder.path());
        ended = files::FileSystemFaults::calls(files::FileSystemCall::read) < nth;
        ASSERT_EQ(weights_of(engine), saved) << "read " << nth;
      }
      EXPECT_GT(nth, 40);
    }
  });
}

// --- disks as they are

// A separate file system for as long as this lives; where() is empty if this process may not mount.
class Mount {
 public:
  // `options`: of mount(8).
  explicit Mount(const std::string& options) {
    const std::string command = "mount " + options + " '" + folder_.path() + "' 2> /dev/null";
    is_mounted_ = std::system(command.c_str()) == 0;
  }
  ~Mount() {
    if (is_mounted_) is_mounted_ = std::system(("umount '" + folder_.path() + "'").c_str()) != 0;
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  std::string where() const { return is_mounted_ ? folder_.path() : ""; }

 private:
  files::ScratchFolder folder_;
  bool is_mounted_ = false;
};

// Room for one checkpoint and a half: the first stays, the second is an error that says so.
void expect_room_for_one(const Mount& disk) {
  with_engine(
      [&](zero::Engine& engine) {
        save_checkpoint(engine, disk.where());
        step(engine);
        try {
          save_checkpoint(engine, disk.where());
          ADD_FAILURE() << "the disk was to be full";
        } catch (const IoError& error) {
          EXPECT_EQ(error.error_number(), ENOSPC) << error.what();
        }
        EXPECT_THAT(files::names_in(disk.where()), testing::Contains("step-000001"));
        EXPECT_THAT(whole_after_cleaning(disk.where()), ElementsAre(1));
        std::filesystem::remove_all(disk.where() + "/step-000001");
        save_checkpoint(engine, disk.where());
        EXPECT_THAT(whole_after_cleaning(disk.where()), ElementsAre(2));
      },
      kLargeVocabulary);
}

TEST(RealDisk, InMemory_ThatIsFull_KeepsTheCheckpointBefore) {
  const Mount disk("-t tmpfs -o size=9m tmpfs");
  if (disk.where().empty()) GTEST_SKIP() << "no right to mount";
  expect_room_for_one(disk);
}

TEST(RealDisk, OfAFileSystemInAFile_ThatIsFull_KeepsTheCheckpointBefore) {
  const files::ScratchFolder folder;
  const std::string image = folder / "image";
  const std::string make = "truncate -s 12M '" + image +
                           "' && mkfs.ext4 -q -m 0 -O ^has_journal '" + image +
                           "' > /dev/null 2>&1";
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no mkfs.ext4";
  const Mount disk("-o loop '" + image + "'");
  if (disk.where().empty()) GTEST_SKIP() << "no right to mount, or no loop devices";
  expect_room_for_one(disk);
}

// --- a disk that loses power

// Files and folders, and what of them would be there after a loss of power.
class Disk {
 public:
  explicit Disk(std::string root) : root_(std::move(root)) {
    nodes_.push_back({.is_folder = true});
    load(root_, 0);
  }

  // Changes that are not durable yet, in their order; each may be lost.
  struct Pending {
    size_t node = 0;     // the file that is written, or the folder whose names change
    std::string name;    // for a folder
    int64_t child = -1;  // the file of the name from then on; -1: none
    int64_t offset = 0;
    std::string bytes;
    std::string pair{};  // for a rename: lost and kept together if both are in one folder
  };

  void apply(const files::FileSystemChange& change) {
    using Change = files::FileSystemChange;
    switch (change.kind) {
      case Change::create_file:
      case Change::create_folder:
        nodes_.push_back({.is_folder = change.kind == Change::create_folder});
        set_name(change.path, static_cast<int64_t>(nodes_.size()) - 1);
        break;
      case Change::write:
        pending_.push_back({.node = node_at(change.path),
                            .name = {},
                            .offset = change.offset,
                            .bytes = change.bytes});
        put(nodes_[node_at(change.path)].now, change.offset, change.bytes);
        break;
      case Change::sync:
        sync(node_at(change.path));
        break;
      case Change::rename: {
        const auto node = static_cast<int64_t>(node_at(change.path));
        const size_t before = pending_.size();
        set_name(change.to, node);
        set_name(change.path, -1);
        for (size_t i = before; i < pending_.size(); ++i) pending_[i].pair = change.path;
        break;
      }
      case Change::exchange: {
        const auto a = static_cast<int64_t>(node_at(change.path));
        const auto b = static_cast<int64_t>(node_at(change.to));
        const size_t before = pending_.size();
        set_name(change.path, b);
        set_name(change.to, a);
        for (size_t i = before; i < pending_.size(); ++i) pending_[i].pair = change.path;
        break;
      }
      case Change::remove:
        set_name(change.path, -1);
        break;
    }
  }

  size_t num_pending() const { return pending_.size(); }

  // Writes what is there after a loss of power to `folder`: all that is durable, and of what is
  // pending that for which `keeps` says so.
  void write_to(const std::string& folder, const std::function<bool(size_t)>& keeps) const {
    std::vector<Node> nodes = nodes_;
    std::map<std::string, bool> pairs;
    for (size_t i = 0; i < pending_.size(); ++i) {
      const Pending& change = pending_[i];
      bool is_kept = keeps(i);
      if (!change.pair.empty()) is_kept = pairs.try_emplace(change.pair, is_kept).first->second;
      if (!is_kept) continue;
      Node& node = nodes[change.node];
      if (!node.is_folder) {
        put(node.durable, change.offset, change.bytes);
      } else if (change.child < 0) {
        node.durable_names.erase(change.name);
      } else {
        node.durable_names[change.name] = static_cast<size_t>(change.child);
      }
    }
    write(nodes, nodes[0], folder);
  }

 private:
  struct Node {
    bool is_folder = false;
    std::string durable{}, now{};                            // for a file
    std::map<std::string, size_t> durable_names{}, names{};  // for a folder
  };

  static void put(std::string& content, int64_t offset, const std::string& bytes) {
    const auto begin = static_cast<size_t>(offset);
    if (content.size() < begin + bytes.size()) content.resize(begin + bytes.size());
    content.replace(begin, bytes.size(), bytes);
  }

  void load(const std::string& path, size_t folder) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      const size_t child = nodes_.size();
      nodes_.push_back({.is_folder = entry.is_directory()});
      nodes_[folder].names[entry.path().filename().string()] = child;
      if (entry.is_directory()) {
        load(entry.path().string(), child);
      } else {
        nodes_[child].durable = nodes_[child].now = files::read_whole_file(entry.path().string());
      }
    }
    nodes_[folder].durable_names = nodes_[folder].names;
  }

  size_t node_at(const std::string& path) const {
    size_t node = 0;
    for (const std::string& name : parts(path)) node = nodes_[node].names.at(name);
    return node;
  }
  std::vector<std::string> parts(const std::string& path) const {
    std::vector<std::string> names;
    for (const auto& part : std::filesystem::path(path).lexically_relative(root_)) {
      if (part != ".") names.push_back(part.string());
    }
    return names;
  }
  void set_name(const std::string& path, int64_t child) {
    const std::filesystem::path of(path);
    const size_t folder = node_at(of.parent_path().string());
    const std::string name = of.filename().string();
    if (child < 0) {
      nodes_[folder].names.erase(name);
    } else {
      nodes_[folder].names[name] = static_cast<size_t>(child);
    }
    pending_.push_back({.node = folder, .name = name, .child = child, .offset = 0, .bytes = {}});
  }
  void sync(size_t node) {
    nodes_[node].durable = nodes_[node].now;
    nodes_[node].durable_names = nodes_[node].names;
    std::erase_if(pending_, [&](const Pending& change) { return change.node == node; });
  }
  static void write(const std::vector<Node>& nodes, const Node& node, const std::string& path) {
    std::filesystem::create_directories(path);
    for (const auto& [name, child] : node.durable_names) {
      if (nodes[child].is_folder) {
        write(nodes, nodes[child], path + '/' + name);
      } else {
        std::ofstream(path + '/' + name, std::ios::binary) << nodes[child].durable;
      }
    }
  }

  const std::string root_;
  std::vector<Node> nodes_;
  std::vector<Pending> pending_;
};

using Changes = std::vector<files::FileSystemChange>;
using Keeps = std::function<bool(size_t)>;

// The changes of a save with a prune after it, and the disk before them: with a checkpoint of step
// 1.
struct Scene {
  files::ScratchFolder folder;
  std::unique_ptr<Disk> disk;
  Changes changes;
};

std::unique_ptr<Scene> make_scene(int64_t vocab_size = 37) {
  auto scene = std::make_unique<Scene>();
  with_engine(
      [&](zero::Engine& engine) {
        save_checkpoint(engine, scene->folder.path());
        scene->disk = std::make_unique<Disk>(scene->folder.path());
        step(engine);
        files::FileSystemRecord record;
        save_and_prune(engine, scene->folder.path());
        scene->changes = record.take();
      },
      vocab_size);
  return scene;
}

// The steps that a start finds after a loss of power; none where something in part is found.
std::vector<int64_t> found_after_loss(const Disk& disk, const Keeps& keeps) {
  const files::ScratchFolder after;
  disk.write_to(after.path(), keeps);
  try {
    return whole_after_cleaning(after.path());
  } catch (const DataError&) {
    return {};
  }
}

// Cuts the changes off behind each, and loses of what is pending then: nothing (that is a kill),
// all, and `random_subsets` times a random part. Returns the number of states, and of bad ones.
struct Sweep {
  int states = 0;
  int bad = 0;
};
Sweep sweep(const Scene& scene, const Changes& changes, int random_subsets, bool each_alone) {
  Sweep result;
  Disk disk = *scene.disk;
  std::mt19937 random(11);
  const auto check = [&](const Keeps& keeps) {
    ++result.states;
    if (found_after_loss(disk, keeps).empty()) ++result.bad;
  };
  for (size_t n = 0; n <= changes.size(); ++n) {
    if (n > 0) disk.apply(changes[n - 1]);
    check([](size_t) { return true; });
    check([](size_t) { return false; });
    for (int i = 0; i < random_subsets; ++i) check([&](size_t) { return random() % 2 == 0; });
    for (size_t lost = 0; each_alone && lost < disk.num_pending(); ++lost) {
      check([&](size_t at) { return at != lost; });
    }
  }
  return result;
}

TEST(PowerLoss, AtEveryInstant_LeavesAWholeCheckpoint) {
  const auto scene = make_scene();
  EXPECT_GT(scene->changes.size(), 15U);
  const Sweep result = sweep(*scene, scene->changes, 15, true);
  EXPECT_EQ(result.bad, 0) << "of " << result.states;
  EXPECT_GT(result.states, 350);
}

TEST(PowerLossSlow, OfALargeState_LeavesAWholeCheckpoint) {
  const auto scene = make_scene(kLargeVocabulary);
  const auto large = [](const files::FileSystemChange& change) {
    return change.bytes.size() > (1 << 20);
  };
  EXPECT_GT(std::ranges::count_if(scene->changes, large), 1);
  const Sweep result = sweep(*scene, scene->changes, 2, true);
  EXPECT_EQ(result.bad, 0) << "of " << result.states;
}

TEST(PowerLossSlow, AtEveryInstant_EachChangeAlone_AndRandomOnes) {
  const auto scene = make_scene();
  const Sweep result = sweep(*scene, scene->changes, 100, true);
  EXPECT_EQ(result.bad, 0) << "of " << result.states;
  EXPECT_GT(result.states, 2000);
}

// The newest is the one that was saved last, once the save has returned.
TEST(PowerLoss, AfterTheSave_TheNewCheckpointIsThere) {
  const auto scene = make_scene();
  Disk disk = *scene->disk;
  for (const files::FileSystemChange& change : scene->changes) {
    const bool prunes = change.kind == files::FileSystemChange::rename &&
                        change.to.find("/.trash-") != std::string::npos;
    if (prunes) break;
    disk.apply(change);
  }
  EXPECT_THAT(found_after_loss(disk, [](size_t) { return false; }), ElementsAre(2, 1));
}

// Each step of the protocol is needed: without it, some loss of power leaves a bad state.
TEST(PowerLoss, SeesWhenAStepOfTheProtocolIsMissing) {
  const auto scene = make_scene();
  const Changes& changes = scene->changes;
  const auto is_file = [](const files::FileSystemChange& c) {
    return c.path.ends_with(".json") || c.path.ends_with(".safetensors");
  };
  const auto commit = std::ranges::find_if(changes, [](const files::FileSystemChange& c) {
    return c.kind == files::FileSystemChange::rename && c.to.ends_with("/step-000002");
  });
  const auto prune = std::ranges::find_if(changes, [](const files::FileSystemChange& c) {
    return c.kind == files::FileSystemChange::rename && c.to.find("/.trash-") != std::string::npos;
  });
  ASSERT_TRUE(commit != changes.end() && prune != changes.end());

  Changes no_sync_of_files = changes;
  std::erase_if(no_sync_of_files, [&](const files::FileSystemChange& c) {
    return c.kind == files::FileSystemChange::sync && is_file(c);
  });
  EXPECT_GT(sweep(*scene, no_sync_of_files, 5, false).bad, 0) << "files are not synced";

  Changes no_sync_of_folder = changes;
  std::erase_if(no_sync_of_folder, [&](const files::FileSystemChange& c) {
    return c.kind == files::FileSystemChange::sync && c.path.find(".tmp-") != std::string::npos &&
           !is_file(c);
  });
  EXPECT_LT(no_sync_of_folder.size(), changes.size());
  EXPECT_GT(sweep(*scene, no_sync_of_folder, 5, false).bad, 0) << "the folder is not synced";

  Changes no_sync_of_parent = changes;
  std::erase_if(no_sync_of_parent, [&](const files::FileSystemChange& c) {
    return c.kind == files::FileSystemChange::sync && c.path == scene->folder.path();
  });
  EXPECT_LT(no_sync_of_parent.size(), changes.size());
  EXPECT_GT(sweep(*scene, no_sync_of_parent, 5, false).bad, 0) << "the parent is not synced";

  // A sync behind the rename then syncs the new name's content.
  Changes rename_first;
  const auto first_sync = std::ranges::find_if(changes, [&](const files::FileSystemChange& c) {
    return c.kind == files::FileSystemChange::sync && is_file(c);
  });
  ASSERT_LT(first_sync, commit);
  for (auto at = changes.begin(); at != changes.end(); ++at) {
    if (at == commit) continue;
    if (at == first_sync) rename_first.push_back(*commit);
    files::FileSystemChange change = *at;
    if (at >= first_sync && change.path.starts_with(commit->path)) {
      change.path.replace(0, commit->path.size(), commit->to);
    }
    rename_first.push_back(std::move(change));
  }
  EXPECT_GT(sweep(*scene, rename_first, 5, false).bad, 0) << "the folder has its name at once";

  Changes prune_first(prune, changes.end());
  prune_first.insert(prune_first.end(), changes.begin(), prune);
  EXPECT_GT(sweep(*scene, prune_first, 5, false).bad, 0) << "the old one goes first";
}

}  // namespace checkpoint_faults_test
}  // namespace zinc::train
