// Parameters on NVMe: what is done with them between passes, and passes that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/offload/damaged_page.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace swapped_parameters_test {

using offload::DamagedPage;
using test::make_batch;
using test::tiny_config;

// Two buffers, each smaller than a group's shard; one block is gathered ahead, none stays.
EngineConfig swapped_config(const offload::SwapFolder& folder, bool overlap = true) {
  EngineConfig config = test::training_config(1, DType::f32, ReduceSchedule::boundary);
  config.zero.stage = 3;
  config.zero.overlap_comm = overlap;
  config.zero.prefetch_bucket_size = 12'000;  // no two blocks
  config.zero.offload_param = {.device = OffloadDevice::nvme,
                               .nvme_path = folder.path(),
                               .buffer_count = 2,
                               .buffer_size = 2048,
                               .max_in_cpu = 0};
  config.aio.block_size = 4096;
  return config;
}

comm::ConnectOptions poisoned() {
  comm::ConnectOptions connect{.seed = 5, .num_threads = 1};
  connect.memory.poison = true;  // memory that nothing was brought to shows as NaN
  return connect;
}

void train_step(Engine& engine, int64_t index) {
  engine.backward(engine.forward(make_batch(index)));
  engine.step();
}

// The parts that read_own() hands out are those of what parameter() gives.
void expect_own_weights(Engine& engine) {
  struct Part {
    int64_t begin;
    std::vector<float> values;
  };
  std::multimap<std::string, Part> parts;
  engine.read_own(Engine::Own::weights, [&](const OwnPiece& piece) {
    const float* data = piece.values.data_as<float>();
    parts.emplace(piece.name, Part{piece.begin, {data, data + piece.values.numel()}});
  });
  EXPECT_FALSE(parts.empty());
  for (const auto& [name, parameter] : engine.model().named_parameters()) {
    const std::vector<float> whole = engine.parameter(name).to_vector<float>();
    const auto [first, last] = parts.equal_range(name);
    for (auto part = first; part != last; ++part) {
      const auto at = whole.begin() + part->second.begin;
      const std::vector<float>& values = part->second.values;
      EXPECT_TRUE(std::equal(values.begin(), values.end(), at)) << name;
    }
  }
}

// All weights after two steps, each followed by reading them where `reads`.
std::vector<float> train_partly_frozen(int world_size, const EngineConfig& config, bool reads) {
  std::vector<float> weights;
  comm::run_local_ranks(world_size, poisoned(), [&](comm::World& world) {
    world.communicator().set_deadline(std::chrono::minutes(1));
    nn::Gpt2Config shape = tiny_config();
    shape.num_layers = 2;
    nn::Gpt2 model(shape);
    model.freeze("transformer.wte.weight");
    model.freeze("transformer.h.0.*");
    Engine engine(model, config, world);
    for (int64_t step = 0; step < 2; ++step) {
      train_step(engine, step * world.size() + world.rank());
      if (reads) expect_own_weights(engine);
    }
    const std::vector<float> values = test::weights_of(engine);
    if (world.rank() == 0) weights = values;
  });
  return weights;
}

// The first tiles of the next pass, frozen ones, are on their way to memory then.
TEST(SwappedParameters, FrozenOnes_AreReadRightAfterAStep) {
  const offload::SwapFolder folder;
  for (const int world_size : {1, 2}) {
    EngineConfig on_device = swapped_config(folder);
    on_device.zero.offload_param.device = OffloadDevice::none;
    const std::vector<float> right = train_partly_frozen(world_size, on_device, false);
    EXPECT_EQ(train_partly_frozen(world_size, swapped_config(folder), true), right) << world_size;
  }
}

double loss_of(Engine& engine) { return engine.evaluate(make_batch(7)).loss_sum; }

// A step after what failed, then all weights.
std::vector<float> weights_after(Engine& engine) {
  train_step(engine, 1);
  return test::weights_of(engine);
}

// A pass that failed leaves nothing behind: what it brought in part is brought anew. `fail` gets an
// engine after a step, makes passes of it throw, and repeats them.
template <class Fail>
void expect_nothing_left(const EngineConfig& config, const comm::ConnectOptions& connect,
                         const Fail& fail) {
  std::vector<float> right;
  std::vector<float> found;
  for (const bool fails : {false, true}) {
    comm::run_local_ranks(1, connect, [&](comm::World& world) {
      nn::Gpt2Config shape = tiny_config();
      shape.num_layers = 2;
      nn::Gpt2 model(shape);
      Engine engine(model, config, world);
      train_step(engine, 0);
      const double loss = loss_of(engine);
      if (fails) fail(world, engine, loss);
      (fails ? found : right) = weights_after(engine);
    });
  }
  EXPECT_TRUE(found == right);
}

TEST(SwappedParameters, AfterAReadOfWrongBytes_TheNextPassHasTheRightOnes) {
  for (const bool overlap : {false, true}) {
    const offload::SwapFolder folder;
    expect_nothing_left(swapped_config(folder, overlap), poisoned(),
                        [&](comm::World&, Engine& engine, double loss) {
                          const int64_t pages = DamagedPage::pages_in(folder);
                          EXPECT_GT(pages, 8);
                          for (int64_t page = 0; page < pages; page += 9) {
                            {
                              const DamagedPage damaged(folder, page);
                              EXPECT_THROW(loss_of(engine), IoError) << page;
                            }
                            EXPECT_EQ(loss_of(engine), loss) << page;
                          }
                        });
  }
}

EngineConfig late_config(const offload::SwapFolder& folder) {
  EngineConfig config = swapped_config(folder);
  config.zero.offload_param = {};
  config.zero.sub_group_size = 2048;
  config.zero.offload_optimizer = {.device = OffloadDevice::nvme,
                                   .nvme_path = folder.path(),
                                   .pipeline_read = true,
                                   .pipeline_write = true};
  return config;
}

// The disk damages an update that ends beside the next forward pass.
TEST(SwappedStates, WrongBytes_AreTheErrorOfWhoeverNeedsThem) {
  const offload::SwapFolder folder;
  comm::run_local_ranks(1, poisoned(), [&](comm::World& world) {
    nn::Gpt2 model(tiny_config());
    Engine engine(model, late_config(folder), world);
    engine.backward(engine.forward(make_batch(0)));
    // The last tile is damaged: its read comes after the step, or with its end if the disk is fast.
    const DamagedPage damaged(folder, DamagedPage::pages_in(folder) - 1);
    EXPECT_THROW(
        {
          engine.step();
          engine.forward(make_batch(1));
        },
        IoError);
    EXPECT_THROW(engine.forward(make_batch(1)), IoError);
    EXPECT_THROW(engine.finish_update(), IoError);
  });
}

TEST(SwappedStates, AnEngineThatGoesInTheMiddleOfAnUpdateLeavesNothing) {
  for (const uint64_t seed : {0, 1}) {
    const offload::SwapFolder folder;
    comm::ConnectOptions connect = poisoned();
    if (seed > 0) connect.execution = ContextOptions::Execution::shuffled;
    connect.shuffle_seed = seed;
    comm::run_local_ranks(1, connect, [&](comm::World& world) {
      nn::Gpt2 model(tiny_config());
      {
        Engine engine(model, late_config(folder), world);
        train_step(engine, 0);
      }
      EXPECT_EQ(world.context().allocator().report().at(Tier::pinned_host).live, 0);
      EXPECT_EQ(world.context().allocator().report().at(Tier::device).live, 0);
    });
    EXPECT_TRUE(folder.is_empty());
  }
}

TEST(SwappedParameters, AfterMemoryRanOut_TheNextPassHasTheRightValues) {
  constexpr int64_t kLimit = int64_t{64} << 20;
  for (const bool overlap : {false, true}) {
    const offload::SwapFolder folder;
    comm::ConnectOptions connect = poisoned();
    connect.memory.limits[static_cast<size_t>(Tier::device)] = kLimit;
    expect_nothing_left(
        swapped_config(folder, overlap), connect,
        [](comm::World& world, Engine& engine, double loss) {
          Context& context = world.context();
          // The limit grows from no memory at all to memory for all that a pass takes.
          bool failed = true;
          for (int64_t room = 0; failed; room += 20000) {
            {
              const int64_t live = context.allocator().report().at(Tier::device).live;
              const Block rest = context.allocate(kLimit - live - room, Label::workspace);
              try {
                failed = false;
                loss_of(engine);
              } catch (const OutOfMemory&) {
                failed = true;
              }
            }
            EXPECT_EQ(loss_of(engine), loss) << room;
          }
        });
  }
}

}  // namespace swapped_parameters_test
}  // namespace zinc::zero
