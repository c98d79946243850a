// Parameters on NVMe: what is done with them between passes, and passes that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "tests/zero/tiny_training.h"
#include "zero/engine.h"

namespace zinc::zero {
namespace {

using test::make_batch;
using test::tiny_config;

// Two buffers, each smaller than a group's shard; nothing stays gathered.
EngineConfig swapped_config(const offload::SwapFolder& folder, bool overlap = true) {
  EngineConfig config = test::training_config(1, DType::f32, ReduceSchedule::boundary);
  config.zero.stage = 3;
  config.zero.overlap_comm = overlap;
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

// The parts that read_own_weights() hands out are those of what parameter() gives.
void expect_own_weights(Engine& engine) {
  struct Part {
    int64_t begin;
    std::vector<float> values;
  };
  std::multimap<std::string, Part> parts;
  engine.read_own_weights([&](const std::string& name, int64_t begin, ConstView values) {
    const float* data = values.data_as<float>();
    parts.emplace(name, Part{begin, {data, data + values.numel()}});
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

}  // namespace
}  // namespace zinc::zero
