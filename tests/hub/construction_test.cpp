// The memory for a model and an engine on stage 3: no rank ever holds more than its shards and a
// small piece of one parameter, whether weights are initialised or read from files.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <tuple>

#include "comm/local/local.h"
#include "hub/model.h"
#include "hub/model_folder.h"
#include "nn/models/llama.h"
#include "tests/files/scratch_folder.h"
#include "train/weights/save_model.h"
#include "zero/engine.h"
#include "zero/layout/shard_group.h"

namespace zinc::hub {
namespace construction_test {

constexpr int kWorld = 4;
constexpr int64_t kPiece = int64_t{1} << 20;  // elements of a parameter that are read at a time

// 5 million weights. A rank's part of the embedding is larger than a piece.
nn::LlamaConfig model_config() {
  nn::LlamaConfig config;
  config.vocab_size = 17'000;
  config.max_positions = 16;
  config.hidden_size = 256;
  config.intermediate_size = 512;
  config.num_layers = 1;
  config.tie_word_embeddings = true;
  config.num_heads = 4;
  config.num_kv_heads = 4;
  return config;
}

zero::EngineConfig config_of(zero::OffloadDevice device) {
  zero::EngineConfig config;
  config.batch.micro_batch = 1;
  config.precision.dtype = DType::bf16;
  config.zero.stage = 3;
  config.zero.param_persistence_threshold = 0;
  config.zero.offload_optimizer.device = device;
  config.zero.offload_param.device = device;
  return config;
}

// Bytes of the process's heap in use; the allocators of the ranks map memory of their own. 0 where
// the address sanitizer owns the heap: the C library's own was never set up there, and threads that
// ask for it at once crash.
int64_t heap_bytes() {
#ifdef __SANITIZE_ADDRESS__
  return 0;
#else
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
#endif
}

// Ranks read in turn, so that what is on the heap when one looks is what the engines keep.
std::mutex one_reader;

// Passes on what is read and looks at memory whenever something is.
class Watched : public nn::WeightSource {
 public:
  Watched(const nn::WeightSource& source, Context& context)
      : source_(source), context_(context), heap_before_(heap_bytes()) {}
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return source_.shape_of(parameter);
  }
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override {
    EXPECT_LE(out.numel(), kPiece) << parameter.name();
    const std::lock_guard<std::mutex> lock(one_reader);
    source_.read(parameter, begin, out);
    elements_ += out.numel();
    heap_ = std::max(heap_, heap_bytes() - heap_before_);
    mapped_ = std::max(mapped_, mapped());
  }
  int64_t elements() const { return elements_; }
  int64_t heap() const { return heap_; }
  int64_t peak_mapped() const { return mapped_; }
  // Bytes of this rank's allocator, on all tiers.
  int64_t mapped() const {
    const MemoryReport report = context_.allocator().report();
    int64_t bytes = 0;
    for (const MemoryFigures& tier : report.total) bytes += tier.live;
    return bytes;
  }

 private:
  const nn::WeightSource& source_;
  Context& context_;
  int64_t heap_before_;
  mutable int64_t elements_ = 0;
  mutable int64_t heap_ = 0;
  mutable int64_t mapped_ = 0;
};

void make_engine(comm::World& world, nn::Model& model, const nn::WeightSource& source,
                 zero::OffloadDevice device) {
  const Watched watched(source, world.context());
  const zero::Engine engine(model, config_of(device), world, {.weights = &watched});
  int64_t shard = 0;
  int64_t largest = 0;
  for (const zero::ShardGroup& group : zero::make_shard_groups(model, kWorld, 0)) {
    shard += group.numel() / kWorld;
    largest = std::max(largest, group.numel() / kWorld);
  }
  // 2 of the model, 12 of the optimizer; and where the optimizer is elsewhere, at most two buffers
  // of updated weights on their way back.
  const int64_t buffers = device == zero::OffloadDevice::none ? 0 : 2 * 2 * largest;
  EXPECT_GE(watched.mapped(), 14 * shard);
  EXPECT_LE(watched.mapped(), 14 * shard + buffers);
  // While it is read a piece is there in f32, and rounded where it goes to another tier.
  const int64_t piece = device == zero::OffloadDevice::none ? 4 * kPiece : 6 * kPiece;
  EXPECT_LE(watched.peak_mapped(), 14 * shard + piece);
  EXPECT_LE(world.context().allocator().report().at(Tier::device).peak,
            (device == zero::OffloadDevice::none ? 14 * shard : 0) + piece);
  // Each element is read by one rank; padding is read by none.
  EXPECT_LE(watched.elements(), shard);
  EXPECT_GT(watched.elements(), shard / 2);
  // Tables, of all ranks together; the weights are 20 MB.
  EXPECT_LT(watched.heap(), kWorld * int64_t{500'000});
}

class Construction : public testing::TestWithParam<zero::OffloadDevice> {};
INSTANTIATE_TEST_SUITE_P(Places, Construction,
                         testing::Values(zero::OffloadDevice::none, zero::OffloadDevice::cpu));

TEST_P(Construction, OnStage3_InitialisesShardByShard) {
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [](comm::World& world) {
    nn::Llama model(model_config());
    const nn::InitializerSource source(5);
    make_engine(world, model, source, GetParam());
  });
}

// The files have another dtype than the model, so that reading converts.
TEST_P(Construction, OnStage3_LoadsFilesShardByShard) {
  const files::ScratchFolder folder;
  const ModelConfigFile config{.config = model_config()};
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Llama model(model_config());
    zero::EngineConfig whole;
    whole.precision.dtype = DType::f16;
    whole.optimizer.kind = optim::OptimizerKind::sgd;
    zero::Engine engine(model, whole, world);
    train::save_model(engine, config, folder / "model");
  });
  comm::run_local_ranks(kWorld, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    nn::Llama model(model_config());
    const FolderWeights source(folder / "model", model, config.config);
    make_engine(world, model, source, GetParam());
  });
}

// A model is a declaration: one of 8 billion weights takes nothing but names.
TEST(Construction, OfAModel_TakesNoMemoryForWeights) {
  comm::run_local_ranks(1, {.seed = 5, .num_threads = 1}, [](comm::World& world) {
    const int64_t heap = heap_bytes();
    nn::Llama model(nn::LlamaConfig::preset("llama-8b"));
    EXPECT_GT(model.num_parameters(), 8'000'000'000);
    model.freeze("model.layers.3.*");
    model.set_dtype(DType::bf16);
    EXPECT_LT(heap_bytes() - heap, 2'000'000);
    EXPECT_EQ(world.context().allocator().report().at(Tier::device).peak, 0);
  });
}

}  // namespace construction_test
}  // namespace zinc::hub
