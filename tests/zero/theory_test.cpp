// The bytes and the traffic of ZeRO's paper (Rajbhandari et al. 2020, section 5 and 7), with every
// bound at 0 and one micro-batch per step: bf16 weights and gradients, f32 master weights and
// moments. P is the number of weights with padding, W the world.
//
//   stage | parameters | optimizer | elements that a rank sends per step
//   0     | 2P         | 12P       | 2P (W-1)/W
//   1, 2  | 2P         | 12P/W     | 2P (W-1)/W
//   3     | 2P/W       | 12P/W     | 3P (W-1)/W at most
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "comm/local/local.h"
#include "tests/zero/tiny_model.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {
namespace theory_test {

constexpr int kWorld = 4;

struct Figures {
  MemoryReport built;  // after construction
  MemoryReport peaks;  // after two steps
  int64_t sent = 0;    // bytes, in the second step
  int64_t weights = 0;
  int64_t largest_group = 0;
  int64_t ends = 0;  // weights of the groups without a block: embedding, last norm, head
};

// Wide enough that a group is many shard units: padding and scalars are small beside it.
nn::LlamaConfig model_config() {
  nn::LlamaConfig config = test::tiny_llama_config();
  config.hidden_size = 64;
  config.intermediate_size = 160;
  config.tie_word_embeddings = false;
  return config;
}

Figures measure(int stage, const optim::OptimizerConfig& optimizer = {}) {
  Figures figures;
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    EngineConfig config;
    config.batch.micro_batch = 2;
    config.precision.dtype = DType::bf16;
    config.zero.stage = stage;
    config.optimizer = optimizer;
    config.zero.param_persistence_threshold = 0;
    config.zero.max_live_parameters = 0;
    config.zero.max_reuse_distance = 0;
    nn::Llama model(model_config());
    Engine engine(model, config, world);
    Figures mine;
    mine.built = world.context().allocator().report();
    for (int64_t step = 0; step < 2; ++step) {
      const int64_t before = world.communicator().bytes_sent();
      engine.backward(engine.forward(test::make_batch(step * kWorld + world.rank())));
      engine.step();
      world.context().synchronize();
      mine.sent = world.communicator().bytes_sent() - before;
    }
    mine.peaks = world.context().allocator().report();
    for (const ShardGroup& group : make_shard_groups(model, kWorld, 0)) {
      mine.weights += group.numel();
      mine.largest_group = std::max(mine.largest_group, group.numel());
      if (group.name().find("layers") == std::string::npos) mine.ends += group.numel();
    }
    if (world.rank() == 0) figures = mine;
  });
  return figures;
}

int64_t live(const MemoryReport& report, Label label) {
  return report.at(Tier::device, label).live;
}
int64_t peak(const MemoryReport& report, Label label) {
  return report.at(Tier::device, label).peak;
}

class Theory : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, Theory, testing::Values(0, 1, 2, 3));

TEST_P(Theory, ModelStatesAreWhatThePaperSays) {
  const int stage = GetParam();
  const Figures f = measure(stage);
  const int64_t p = f.weights;
  const int64_t parameters = stage == 3 ? 2 * p / kWorld : 2 * p;
  const int64_t optimizer = stage == 0 ? 12 * p : 12 * p / kWorld;
  EXPECT_EQ(live(f.built, Label::parameters), parameters);
  EXPECT_EQ(live(f.built, Label::optimizer), optimizer);
  EXPECT_EQ(peak(f.peaks, Label::optimizer), optimizer);

  // The working set: a group in use, and on stages 2 and 3 the gradients of the group that backward
  // is at beside two whose reductions are under way.
  const int64_t group = 2 * f.largest_group;
  if (stage < 3) {
    EXPECT_EQ(peak(f.peaks, Label::parameters), parameters);
  } else {
    EXPECT_GT(peak(f.peaks, Label::parameters), parameters);
    EXPECT_LE(peak(f.peaks, Label::parameters), parameters + group);
  }
  if (stage < 2) {
    EXPECT_EQ(peak(f.peaks, Label::gradients), 2 * p);
  } else {
    EXPECT_LE(peak(f.peaks, Label::gradients), 2 * p / kWorld + 4 * group);
  }
}

// Adam8bit: a master weight of 4 bytes, and of each moment a byte and the 256th part of a scale.
TEST_P(Theory, MomentsInBlocksAreTwoBytesAndTwoScalesOf256) {
  const int stage = GetParam();
  const Figures f = measure(stage, {.kind = optim::OptimizerKind::adam8bit});
  const int64_t optimizer = 4 * f.weights + 2 * (f.weights + f.weights / 256 * 4);
  // Memory is handed out in units of 512 bytes; four groups have two such planes.
  const int64_t least = stage == 0 ? optimizer : optimizer / kWorld;
  EXPECT_GE(live(f.built, Label::optimizer), least);
  EXPECT_LT(live(f.built, Label::optimizer), least + 4 * 2 * 512);
  EXPECT_EQ(peak(f.peaks, Label::optimizer), live(f.built, Label::optimizer));
}

// Without master weights the moments are all, here of two bytes each.
TEST_P(Theory, WithoutMasterWeights_FourBytesOfMomentsAreAll) {
  const Figures f = measure(GetParam(), {.moments = optim::Moments::bf16, .narrow_weights = true});
  const int64_t optimizer = GetParam() == 0 ? 4 * f.weights : 4 * f.weights / kWorld;
  EXPECT_EQ(live(f.built, Label::optimizer), optimizer);
  EXPECT_EQ(peak(f.peaks, Label::optimizer), optimizer);
}

// A number for each row, and one for each column.
TEST_P(Theory, AdafactorKeepsNoMoments) {
  const Figures f = measure(GetParam(), {.kind = optim::OptimizerKind::adafactor});
  const int64_t master = GetParam() == 0 ? 4 * f.weights : 4 * f.weights / kWorld;
  EXPECT_GT(live(f.built, Label::optimizer), master);
  EXPECT_LT(live(f.built, Label::optimizer), master + f.weights / 2);
}

TEST_P(Theory, TrafficIsWhatThePaperSays) {
  const int stage = GetParam();
  const Figures f = measure(stage);
  const auto bytes = [](int64_t elements) { return 2 * elements * (kWorld - 1) / kWorld; };
  // Losses, counts and the norm's partial sums travel in f64.
  constexpr int64_t kScalars = 20'000;
  if (stage < 3) {
    EXPECT_GE(f.sent, bytes(2 * f.weights));
    EXPECT_LE(f.sent, bytes(2 * f.weights) + kScalars);
  } else {
    // Backward needs no weights of the embedding, and none of the head where the loss made its
    // gradient in the forward pass.
    EXPECT_GE(f.sent, bytes(3 * f.weights - f.ends));
    EXPECT_LE(f.sent, bytes(3 * f.weights) + kScalars);
  }
}

}  // namespace theory_test
}  // namespace zinc::zero
