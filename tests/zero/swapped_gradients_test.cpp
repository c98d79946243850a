// Sums of gradients on NVMe: what comes back is what left, what moves, and what disks do to them.
#include "zero/group/swapped_gradients.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "comm/single/single.h"
#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "tensor/tensor.h"
#include "tests/offload/faulty_queue.h"
#include "tests/offload/swap_folder.h"
#include "tests/zero/tiny_model.h"
#include "zero/program/record.h"

namespace zinc::zero {
namespace swapped_gradients_test {

using Fate = offload::Fate;

constexpr int64_t kTile = 2048;  // elements: smaller than a block's shard

// Steps of three micro-batches. Micro-batch m leaves the value 10 m + i in element i, modulo 1024,
// added to the old value; so the sums of a step are known.
class Steps {
 public:
  explicit Steps(const offload::Faults& faults = {}, ContextOptions options = {.num_threads = 1})
      : context_(std::move(options)), scope_(context_) {
    groups_ = make_shard_groups(model_, 1, 100);
    order_ = record_step(model_, groups_, [&] { return model_.example(1, 8); }).reduce_order;
    sums_ = std::make_unique<SwappedGradients>(
        groups_, *communicator_, context_,
        SwappedGradientsOptions{
            .tile_numel = kTile,
            .order = order_,
            .returns = true,
            .swap = {.directory = folder_.path(),
                     .storage = {.block_size = 4096},
                     .make_storage = [faults](const offload::StorageOptions& storage) {
                       return offload::make_faulty_storage(
                           storage, [faults] { return faults; }, true);
                     }}});
  }

  static float value(int64_t element, int micro_batch) {
    return static_cast<float>(10 * micro_batch + element % 1024);
  }

  // Throws IoError.
  void step(int micro_batches = 3) {
    for (int micro = 0; micro < micro_batches; ++micro) {
      sums_->begin(micro == 0);
      for (const int index : order_) add(groups_[static_cast<size_t>(index)], micro);
    }
    sums_->await_all();
  }

  // Throws IoError.
  bool is_right(int micro_batches = 3) {
    bool right = true;
    for (const ShardGroup& group : groups_) {
      EXPECT_TRUE(sums_->has_arrived(group.index()));
      for (const Segment& segment : group.segments()) {
        if (!is_trained(segment.kind)) continue;
        int64_t at = segment.offset;
        while (at < segment.range().end) {
          const ConstView found = host_memory(
              sums_->read({.group = group.index(), .range = {at, segment.range().end}}));
          for (int64_t i = 0; i < found.numel(); ++i, ++at) {
            float wanted = 0.0f;
            for (int m = 0; m < micro_batches; ++m) wanted += value(at, m);
            right = right && found.data_as<float>()[i] == wanted;
          }
        }
      }
    }
    sums_->end_step();
    return right;
  }

  int64_t bytes_kept() const {
    int64_t numel = 0;
    for (const ShardGroup& group : groups_) numel += group.trained_numel();
    return 4 * numel;
  }
  SwappedGradients& sums() { return *sums_; }
  Context& context() { return context_; }
  int64_t live(Tier tier) { return context_.allocator().report().at(tier).live; }

 private:
  static nn::Gpt2Config two_blocks() {
    nn::Gpt2Config config = test::tiny_config();
    config.num_layers = 2;
    return config;
  }

  void add(const ShardGroup& group, int micro) {
    if (group.num_trained_parameters() == 0) return;
    const Tensor arena = Tensor::empty({group.trained_numel()}, DType::f32, Label::gradients);
    const View all = arena.view();
    const auto tile = [&](SegmentKind, Range range) {
      return all.narrow(0, range.begin, range.size());
    };
    const StreamRef stream = context_.stream(StreamRole::reduce);
    stream->wait(context_.compute()->record());
    if (micro > 0) stream->wait(sums_->bring(group.index(), tile));
    stream.submit("add", [=] {
      auto* const data = all.data_as<float>();
      for (int64_t i = 0; i < all.numel(); ++i) {
        data[i] = value(i, micro) + (micro > 0 ? data[i] : 0.0f);
      }
    });
    context_.compute()->wait(sums_->send(group.index(), tile, {}));
  }

  offload::SwapFolder folder_;
  Context context_;
  ContextScope scope_;
  std::unique_ptr<comm::Communicator> communicator_ = comm::make_single();
  nn::Gpt2 model_{two_blocks()};
  ShardGroups groups_;
  std::vector<int> order_;
  std::unique_ptr<SwappedGradients> sums_;
};

TEST(SwappedGradients, ComeBackAsTheyLeft_AndTravelOncePerMicroBatch) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    ContextOptions options{.num_threads = 1};
    options.memory.poison = true;
    if (seed > 0) options.execution = ContextOptions::Execution::shuffled;
    options.shuffle_seed = seed;
    Steps steps({}, std::move(options));
    EXPECT_EQ(steps.live(Tier::nvme), steps.bytes_kept());
    EXPECT_EQ(steps.live(Tier::pinned_host), 4 * kTile * 4);
    for (const int micro_batches : {3, 1, 2}) {
      const offload::SwapTraffic before = steps.sums().traffic();
      steps.step(micro_batches);
      const offload::SwapTraffic moved = steps.sums().traffic() - before;
      EXPECT_EQ(moved.bytes_written, micro_batches * steps.bytes_kept());
      EXPECT_EQ(moved.bytes_read, (micro_batches - 1) * steps.bytes_kept());
      EXPECT_TRUE(steps.is_right(micro_batches)) << seed;
    }
    EXPECT_EQ(steps.live(Tier::pinned_host), 4 * kTile * 4);
  }
}

// A fault of every transfer of one kind while `*on` holds.
offload::Faults faults_of(offload::IoKind kind, Fate fate,
                          const std::shared_ptr<std::atomic<bool>>& on) {
  return {
      .fate = [=](const offload::BlockIo& io) { return *on && io.kind == kind ? fate : Fate{}; }};
}

// Transfers of a failed step that were under way may still fail, once for each buffer.
void expect_a_right_step_soon(Steps& steps) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    try {
      steps.step();
      EXPECT_TRUE(steps.is_right());
      return;
    } catch (const IoError&) {
    }
  }
  ADD_FAILURE() << "no step came to its end";
}

TEST(SwappedGradients, ATransferThatFails_IsANamedErrorOfItsPass) {
  struct Fault {
    offload::IoKind kind;
    Fate fate;
  };
  for (const Fault& fault : {Fault{offload::IoKind::write, {Fate::Kind::answer, -EIO}},
                             Fault{offload::IoKind::read, {Fate::Kind::answer, -EIO}},
                             Fault{offload::IoKind::read, {Fate::Kind::flip_bit, 4321}},
                             Fault{offload::IoKind::write, {Fate::Kind::lose, 0}}}) {
    const auto on = std::make_shared<std::atomic<bool>>(false);
    Steps steps(faults_of(fault.kind, fault.fate, on));
    steps.step();
    *on = true;
    const IoError error = offload::io_error_of([&] { steps.step(); });
    EXPECT_EQ(error.error_number(), EIO);
    EXPECT_NE(std::string(error.what()).find("zinc-swap-"), std::string::npos) << error.what();
    *on = false;
    expect_a_right_step_soon(steps);
  }
}

// Right sums or one named error, and after errors right sums again.
TEST(SwappedGradients, OnABadDisk_AreRightOrAnIoError) {
  int failed = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    const auto random = std::make_shared<std::mt19937>(seed);
    const auto on = std::make_shared<std::atomic<bool>>(true);
    Steps steps({.fate = [=](const offload::BlockIo&) -> Fate {
      if (!*on || (*random)() % 100 != 0) return {};
      switch ((*random)() % 5) {
        case 0:
          return {Fate::Kind::answer, -EIO};
        case 1:
          return {Fate::Kind::shorten, 512};
        case 2:
          return {Fate::Kind::flip_bit, static_cast<int64_t>((*random)() % 30000)};
        case 3:
          return {Fate::Kind::lose, 0};
        default:
          return {Fate::Kind::answer, -EAGAIN};
      }
    }});
    try {
      steps.step();
      EXPECT_TRUE(steps.is_right()) << seed;
    } catch (const IoError&) {
      ++failed;
    }
    *on = false;
    expect_a_right_step_soon(steps);
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 12);
}

}  // namespace swapped_gradients_test
}  // namespace zinc::zero
