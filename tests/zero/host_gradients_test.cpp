// Sums of gradients in host memory: their values whatever the order of streams, and what they take.
#include "zero/group/host_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "core/host_stream.h"
#include "kernels/fill.h"
#include "tensor/tensor.h"
#include "tests/zero/tiny_model.h"

namespace zinc::zero {
namespace host_gradients_test {

// All states of a model of one rank, in host memory.
class Steps {
 public:
  // `whole`: all values are whole numbers.
  Steps(ContextOptions options, bool tree, DType dtype, DType added, bool whole = false)
      : context_(std::move(options)),
        scope_(context_),
        is_tree_(tree),
        is_whole_(whole),
        added_(added) {
    groups_ = make_shard_groups(model_, 1, 100);
    slices_ = StateSplit(groups_, 1, Tier::pinned_host, 1.0).slices(groups_, 0);
    int64_t most = 0;
    for (const ShardGroup& group : groups_) most = std::max(most, group.trained_numel());
    sums_ = std::make_unique<HostGradients>(
        groups_, context_,
        HostGradientsOptions{
            .slices = slices_, .dtype = dtype, .tree = tree, .added = added, .most_added = most});
  }

  // The value that a micro-batch leaves in every element: sums depend on their order.
  float value(int64_t index) const {
    const float value =
        is_whole_ ? static_cast<float>(index + 1) : 0.1f * static_cast<float>(1 + 7 * index % 11);
    return added_ == DType::bf16 ? static_cast<float>(bf16(value)) : value;
  }
  // The sum of `count` micro-batches from `begin` on.
  float sum(int64_t begin, int64_t count) const {
    if (count == 1) return value(begin);
    int64_t left = count - 1;
    if (is_tree_) left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
    return sum(begin, left) + sum(begin + left, count - left);
  }
  void micro_step(int64_t index, int64_t count) {
    for (const ShardGroup& group : groups_) {
      if (group.trained_numel() == 0) continue;
      Tensor shard = Tensor::empty({group.trained_numel()}, added_, Label::gradients);
      kernels::fill({.y = shard.view(), .value = value(index)}, context_.compute());
      const Event left = sums_->send(group.index(),
                                     [&](SegmentKind, Range range) {
                                       return shard.view().narrow(0, range.begin, range.size());
                                     },
                                     {.is_first = index == 0, .is_last = index + 1 == count});
      context_.compute()->wait(left);  // the shard's memory is given back
    }
  }

  // True if every element of every sum is `wanted`.
  bool is(float wanted) {
    bool right = true;
    for (const OwnedRange& slice : slices_) {
      sums_->arrived(slice.group).wait();
      const ConstView found = host_memory(sums_->read(slice));
      for (int64_t i = 0; i < found.numel(); ++i) {
        const float value = found.dtype() == DType::f32
                                ? found.data_as<float>()[i]
                                : static_cast<float>(found.data_as<bf16>()[i]);
        right = right && value == wanted;
      }
    }
    return right;
  }

  void discard() {
    for (const ShardGroup& group : groups_) {
      context_.compute()->wait(sums_->arrived(group.index()));
      sums_->discard(group.index());
    }
  }

  int64_t numel() const {
    int64_t numel = 0;
    for (const OwnedRange& slice : slices_) numel += slice.range.size();
    return numel;
  }
  int64_t live(Label label) {
    return context_.allocator().report().at(Tier::pinned_host, label).live;
  }

 private:
  Context context_;
  ContextScope scope_;
  const bool is_tree_;
  const bool is_whole_;
  const DType added_;
  nn::Gpt2 model_{test::tiny_config()};
  ShardGroups groups_;
  std::vector<OwnedRange> slices_;
  std::unique_ptr<HostGradients> sums_;
};

ContextOptions context_of(uint64_t seed) {
  ContextOptions options{.num_threads = 1};
  options.memory.poison = true;
  if (seed > 0) options.execution = ContextOptions::Execution::shuffled;
  options.shuffle_seed = seed;
  return options;
}

TEST(HostGradients, AreTheSumsOfAStep_InWhateverOrderStreamsRun) {
  for (const bool tree : {false, true}) {
    for (const DType added : {DType::f32, DType::bf16}) {
      for (uint64_t seed = 0; seed < 6; ++seed) {
        Steps steps(context_of(seed), tree, DType::f32, added);
        for (const int64_t count : {1, 2, 3, 6, 7, 16}) {
          for (int64_t i = 0; i < count; ++i) steps.micro_step(i, count);
          EXPECT_TRUE(steps.is(steps.sum(0, count)))
              << count << " micro-batches, seed " << seed << ", tree " << tree;
          steps.discard();
        }
        EXPECT_EQ(steps.live(Label::gradients), 0);
      }
    }
  }
}

// From 256 on bf16 has only even numbers. 1 + ... + 25 = 325 becomes 324. The whole sum, 351, would
// become 352.
TEST(HostGradients, KeptIn16Bits_AreRoundedAtEachAddition) {
  Steps steps(context_of(0), false, DType::bf16, DType::f32, true);
  for (int64_t i = 0; i < 26; ++i) steps.micro_step(i, 26);
  EXPECT_TRUE(steps.is(350.0f));
}

TEST(HostGradients, OfAnAbandonedStep_AreNotAdded) {
  for (const bool tree : {false, true}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Steps steps(context_of(seed), tree, DType::f32, DType::f32);
      for (int64_t i = 0; i < 3; ++i) steps.micro_step(i, 5);
      for (int64_t i = 0; i < 2; ++i) steps.micro_step(i, 2);
      EXPECT_TRUE(steps.is(steps.sum(0, 2))) << seed;
    }
  }
}

// One sum, or those of a tree: a second leaf is added to the first as it comes.
TEST(HostGradients, TakeOneSum_OrThoseOfATree) {
  for (const bool tree : {false, true}) {
    Steps steps(context_of(0), tree, DType::f32, DType::f32);
    const int64_t buffers = steps.live(Label::staging);
    for (int64_t i = 0; i < 8; ++i) {
      steps.micro_step(i, 8);
      const int64_t sums = !tree || i < 2 ? 1 : i < 6 ? 2 : 3;
      EXPECT_EQ(steps.live(Label::gradients), 4 * steps.numel() * sums) << i;
    }
    EXPECT_EQ(steps.live(Label::staging), buffers);
  }
}

}  // namespace host_gradients_test
}  // namespace zinc::zero
