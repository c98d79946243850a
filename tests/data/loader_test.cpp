#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>

#include "core/context.h"
#include "core/error.h"
#include "data/collate.h"
#include "tests/core/await.h"
#include "tests/files/scratch_folder.h"

namespace zinc::data {
namespace loader_test {

using testing::ElementsAre;

// Sample i has tokens i, i + 1, ... and labels one higher.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(int64_t count, int64_t tokens = 3) : count_(count), tokens_(tokens) {}
  int64_t num_samples() const override { return count_; }
  void read(int64_t index, Sample& sample) const override {
    EXPECT_TRUE(sample.tokens.empty() && sample.labels.empty());
    ++reads;
    if (index == broken) throw DataError(str("sample ", index, " is broken"));
    for (int64_t i = 0; i < tokens_; ++i) {
      sample.tokens.push_back(static_cast<int32_t>(index + i));
      sample.labels.push_back(static_cast<int32_t>(index + i + 1));
    }
  }
  std::string describe() const override { return str("counting to ", count_); }

  int64_t broken = -1;
  mutable std::atomic<int> reads = 0;

 private:
  int64_t count_;
  int64_t tokens_;
};

std::vector<int64_t> values(const Tensor& tensor) { return tensor.to_vector<int64_t>(); }

// First token of every row: with CountingDataset the sample's index.
std::vector<int64_t> first_tokens(const nn::Batch& batch) {
  const std::vector<int64_t> all = values(batch["input_ids"]);
  std::vector<int64_t> first;
  for (size_t i = 0; i < all.size(); i += static_cast<size_t>(batch["input_ids"].dim(1))) {
    first.push_back(all[i]);
  }
  return first;
}

class LoaderTest : public testing::Test {
 private:
  Context context_;
  ContextScope scope_{context_};
};

TEST(MicroBatchSamples, EpochsTakeEverySampleOnce) {
  const LoaderOptions options{.micro_batch = 3, .seq_len = 3, .seed = 5};
  std::vector<int64_t> all;
  for (int64_t g = 0; g < 20; ++g) {  // 60 places of 10 samples: six epochs
    const std::vector<int64_t> samples = micro_batch_samples(CountingDataset(10), options, 3 * g);
    all.insert(all.end(), samples.begin(), samples.end());
  }
  std::set<std::vector<int64_t>> orders;
  for (size_t epoch = 0; epoch < 6; ++epoch) {
    const std::vector<int64_t> order(all.begin() + static_cast<std::ptrdiff_t>(10 * epoch),
                                     all.begin() + static_cast<std::ptrdiff_t>(10 * epoch + 10));
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 10U) << "epoch " << epoch;
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 6U) << "epochs repeat their order";
}

TEST(MicroBatchSamples, WithoutShuffle_KeepsTheOrder) {
  const LoaderOptions options{.micro_batch = 4, .seq_len = 3, .shuffle = false};
  EXPECT_THAT(micro_batch_samples(CountingDataset(6), options, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(micro_batch_samples(CountingDataset(6), options, 4), ElementsAre(4, 5, 0, 1));
}

TEST(MicroBatchSamples, SeedDecides) {
  LoaderOptions options{.micro_batch = 50, .seq_len = 3, .seed = 1};
  const std::vector<int64_t> first = micro_batch_samples(CountingDataset(100), options, 0);
  EXPECT_EQ(first, micro_batch_samples(CountingDataset(100), options, 0));
  options.seed = 2;
  EXPECT_NE(first, micro_batch_samples(CountingDataset(100), options, 0));
}

// The samples of each optimizer step, as a set, and the samples of each micro-batch by its global
// index, over all ranks.
struct Steps {
  std::vector<std::multiset<int64_t>> steps;
  std::map<int64_t, std::vector<int64_t>> micro_batches;
};

Steps run(const Dataset& dataset, int world, int64_t accumulation, int num_steps, int prefetch) {
  Steps result;
  result.steps.resize(static_cast<size_t>(num_steps));
  for (int rank = 0; rank < world; ++rank) {
    Loader loader(dataset, {.micro_batch = 2,
                            .seq_len = 3,
                            .seed = 9,
                            .rank = rank,
                            .world = world,
                            .prefetch_batches = prefetch});
    for (auto& step : result.steps) {
      for (int64_t i = 0; i < accumulation; ++i) {
        const nn::Batch batch = loader.next();
        const std::vector<int64_t> samples = first_tokens(batch);
        step.insert(samples.begin(), samples.end());
        EXPECT_TRUE(result.micro_batches.emplace(batch.global_micro_batch, samples).second);
      }
    }
  }
  return result;
}

TEST_F(LoaderTest, AnyWorld_SeesTheSameMicroBatchesInTheSameSteps) {
  const CountingDataset dataset(50);
  const Steps alone = run(dataset, 1, 12, 5, 0);
  for (const int world : {2, 3, 4, 6, 12}) {
    for (const int prefetch : {0, 3}) {
      const Steps many = run(dataset, world, 12 / world, 5, prefetch);
      EXPECT_EQ(many.steps, alone.steps) << "world " << world;
      EXPECT_EQ(many.micro_batches, alone.micro_batches) << "world " << world;
    }
  }
}

TEST_F(LoaderTest, Batch_HoldsTokensLabelsAndCounts) {
  const CountingDataset dataset(8);
  Loader loader(dataset, {.micro_batch = 2, .seq_len = 5, .shuffle = false, .rank = 1, .world = 2});
  const nn::Batch batch = loader.next();
  EXPECT_EQ(batch["input_ids"].shape(), (Shape{2, 5}));
  EXPECT_EQ(batch["input_ids"].dtype(), DType::i32);
  EXPECT_THAT(values(batch["input_ids"]), ElementsAre(2, 3, 4, 0, 0, 3, 4, 5, 0, 0));
  EXPECT_THAT(values(batch["labels"]), ElementsAre(3, 4, 5, -100, -100, 4, 5, 6, -100, -100));
  EXPECT_FALSE(batch.find("lengths").defined());
  EXPECT_FALSE(batch.find("document_starts").defined());
  EXPECT_EQ(batch.num_targets, 6);
  EXPECT_EQ(batch.num_tokens, 6);
  EXPECT_EQ(batch.global_micro_batch, 1);
  EXPECT_EQ(loader.next().global_micro_batch, 3);
}

TEST_F(LoaderTest, RangeFor_GoesOnForEver) {
  const CountingDataset dataset(4);
  Loader loader(dataset, {.micro_batch = 4, .seq_len = 3});
  int batches = 0;
  for (const nn::Batch& batch : loader) {
    EXPECT_EQ(batch.num_tokens, 12);
    if (++batches == 9) break;
  }
  EXPECT_EQ(loader.epoch(), 9.0);
}

TEST_F(LoaderTest, Restore_GoesOnWithTheNextSample) {
  const CountingDataset dataset(50);
  const LoaderOptions options{.micro_batch = 2, .seq_len = 3, .seed = 3};
  Loader whole(dataset, options);
  for (int i = 0; i < 12; ++i) whole.next();
  const LoaderState state = whole.state();
  EXPECT_EQ(state.samples, 24);
  std::vector<std::vector<int64_t>> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(first_tokens(whole.next()));

  Loader resumed(dataset, options);
  resumed.next();
  resumed.restore(state);
  EXPECT_EQ(resumed.state().samples, 24);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(first_tokens(resumed.next()), expected[static_cast<size_t>(i)]);

  // Two ranks instead of one: rank 1's first micro-batch is the second one of the single rank.
  LoaderOptions second = options;
  second.rank = 1;
  second.world = 2;
  Loader other_world(dataset, second);
  other_world.restore(state);
  EXPECT_EQ(first_tokens(other_world.next()), expected[1]);

  EXPECT_EQ(
      files::message_of<InvalidArgument>([&] { resumed.restore({.seed = 4, .samples = 24}); }),
      "loader: the state has seed 4, this loader seed 3: their orders differ");
}

// 21 samples of a run that ends with its first epoch; batches of 4 come first, then others.
TEST_F(LoaderTest, Restore_AnyBatchGoesOnWithTheNextSampleAndEndsTheEpoch) {
  const CountingDataset dataset(21);
  const LoaderOptions options{.micro_batch = 4, .seq_len = 3, .end = 21, .seed = 3};
  Loader first(dataset, options);
  std::vector<int64_t> begun;
  for (int i = 0; i < 2; ++i) {
    for (const int64_t sample : first_tokens(first.next())) begun.push_back(sample);
  }
  for (const int64_t micro_batch : {1, 3, 5, 13, 20}) {
    for (const int world : {1, 2, 3}) {
      SCOPED_TRACE(str(micro_batch, " x ", world));
      std::multiset<int64_t> all(begun.begin(), begun.end());
      for (int rank = 0; rank < world; ++rank) {
        LoaderOptions other = options;
        other.micro_batch = micro_batch;
        other.rank = rank;
        other.world = world;
        Loader loader(dataset, other);
        loader.restore(first.state());
        while (loader.state().samples < 21) {
          const nn::Batch batch = loader.next();
          const std::vector<int64_t> rows = first_tokens(batch);
          for (int64_t row = 0; row < batch.num_targets / 3; ++row) {
            all.insert(rows[static_cast<size_t>(row)]);
          }
        }
        EXPECT_EQ(loader.epoch(), 1.0);
      }
      EXPECT_EQ(all.size(), 21U);
      EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 21U);
    }
  }
}

TEST(RunLength, OfARunThatGoesOn_CountsWhatItHasDone) {
  EXPECT_EQ(length_of_epochs(2.0, 100, 8, 0, 0).steps, steps_of_epochs(2.0, 100, 8));
  const RunLength smaller = length_of_epochs(1.0, 100, 1, 5, 20);
  EXPECT_EQ(smaller.steps, 85);
  EXPECT_EQ(smaller.end, 100);
  EXPECT_EQ(length_of_epochs(1.0, 100, 16, 5, 20).steps, 10);
  EXPECT_EQ(length_of_epochs(1.0, 100, 4, 25, 100).steps, 25);
  EXPECT_EQ(length_of_steps(12, 1, 5, 20).end, 27);
  EXPECT_EQ(length_of_steps(12, 4, 0, 0).end, 48);
}

TEST_F(LoaderTest, MoreRanksThanData_NamesTheNumbers) {
  const CountingDataset dataset(7);
  const LoaderOptions options{.micro_batch = 2, .seq_len = 3, .rank = 3, .world = 4};
  EXPECT_EQ(files::message_of<DataError>([&] { Loader(dataset, options); }),
            "counting to 7: too little data: 7 sequences, but 4 ranks with micro-batch 2 take 8 at "
            "a time; use fewer ranks, a smaller micro-batch, shorter sequences or more data");
  const CountingDataset enough(8);
  Loader(enough, options).next();
}

TEST_F(LoaderTest, PrefetchIsBounded) {
  const CountingDataset dataset(1000);
  Loader loader(dataset, {.micro_batch = 5, .seq_len = 3, .prefetch_batches = 2});
  loader.next();
  await([&] { return dataset.reads >= 15; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time for one that reads on
  EXPECT_EQ(dataset.reads, 15);  // the one that was taken and two ahead
}

TEST_F(LoaderTest, BrokenSample_ThrowsInItsTurnAndEverAfter) {
  for (const int prefetch : {0, 4}) {
    CountingDataset dataset(10);
    dataset.broken = 4;
    Loader loader(dataset,
                  {.micro_batch = 2, .seq_len = 3, .shuffle = false, .prefetch_batches = prefetch});
    EXPECT_EQ(first_tokens(loader.next())[0], 0);
    EXPECT_EQ(first_tokens(loader.next())[0], 2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(files::message_of<DataError>([&] { loader.next(); }), "sample 4 is broken");
    }
  }
}

// Lengths 1, 2, 3, 4 and 0; documents of two tokens.
class RaggedDataset : public Dataset {
 public:
  int64_t num_samples() const override { return 5; }
  BatchFields fields() const override { return {.lengths = true, .document_starts = true}; }
  void read(int64_t index, Sample& sample) const override {
    for (int32_t i = 0; i <= index && index < 4; ++i) {
      sample.tokens.push_back(i + 1);
      sample.labels.push_back(i == 0 ? nn::kIgnoredLabel : i);
      sample.document_starts.push_back(i / 2 * 2);
    }
  }
  std::string describe() const override { return "ragged"; }
};

TEST_F(LoaderTest, RaggedSamples_ArePaddedAndDescribed) {
  const RaggedDataset dataset;
  const std::vector<int64_t> indices = {2, 0};
  const nn::Batch batch = to_batch(collate(dataset, indices, {.batch_size = 3, .seq_len = 4}));
  EXPECT_THAT(values(batch["input_ids"]), ElementsAre(1, 2, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(values(batch["labels"]),
              ElementsAre(-100, 1, 2, -100, -100, -100, -100, -100, -100, -100, -100, -100));
  EXPECT_THAT(values(batch["lengths"]), ElementsAre(3, 1, 1));
  EXPECT_THAT(values(batch["document_starts"]), ElementsAre(0, 0, 2, 3, 0, 1, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(values(batch["positions"]), ElementsAre(0, 1, 0, 0, 0, 0, 1, 2, 0, 1, 2, 3));
  EXPECT_EQ(batch.num_targets, 2);
  EXPECT_EQ(batch.num_tokens, 4);
}

TEST_F(LoaderTest, EmptySample_StillHasAKeyToAttendTo) {
  const std::vector<int64_t> indices = {4};
  const nn::Batch batch =
      to_batch(collate(RaggedDataset(), indices, {.batch_size = 2, .seq_len = 4}));
  EXPECT_THAT(values(batch["lengths"]), ElementsAre(1, 1));
  EXPECT_EQ(batch.num_targets, 0);
  EXPECT_EQ(batch.num_tokens, 0);
}

TEST_F(LoaderTest, SampleThatDoesNotFit_IsADataError) {
  const CountingDataset dataset(5);
  const std::vector<int64_t> indices = {3};
  EXPECT_EQ(files::message_of<DataError>(
                [&] { collate(dataset, indices, {.batch_size = 1, .seq_len = 2}); }),
            "counting to 5: sample 3 has 3 tokens, more than the sequence length of 2");
  class Unlabelled : public CountingDataset {
   public:
    using CountingDataset::CountingDataset;
    void read(int64_t index, Sample& sample) const override {
      CountingDataset::read(index, sample);
      sample.labels.pop_back();
    }
  };
  EXPECT_EQ(files::message_of<DataError>(
                [&] { collate(Unlabelled(5), indices, {.batch_size = 1, .seq_len = 4}); }),
            "counting to 5: sample 3 has 3 tokens but 2 labels");
}

TEST_F(LoaderTest, Evaluation_IsTheSameListInEveryWorld) {
  const CountingDataset dataset(23);
  for (const int64_t max_samples : {0, 11}) {
    std::map<int64_t, std::vector<int64_t>> reference;
    for (const int world : {1, 2, 3, 4, 7}) {
      std::map<int64_t, std::vector<int64_t>> batches;
      int64_t rounds = -1, targets = 0;
      for (int rank = 0; rank < world; ++rank) {
        const EvaluationSet set(
            dataset,
            {.batch = 4, .seq_len = 3, .max_samples = max_samples, .rank = rank, .world = world});
        if (rounds < 0) rounds = set.num_rounds();
        EXPECT_EQ(set.num_rounds(), rounds) << "ranks would wait for each other";
        for (int64_t round = 0; round < rounds; ++round) {
          const nn::Batch batch = set.batch(round);
          EXPECT_EQ(batch["input_ids"].shape(), (Shape{4, 3}));
          EXPECT_EQ(batch.global_micro_batch, -1);
          targets += batch.num_targets;
          const int64_t index = set.batch_index(round);
          if (index < set.num_batches()) {
            batches[index] = values(batch["labels"]);
          } else {
            EXPECT_EQ(batch.num_targets, 0);
          }
        }
      }
      EXPECT_EQ(targets, 3 * (max_samples == 0 ? 23 : 11));
      if (world == 1) reference = batches;
      EXPECT_EQ(batches, reference) << "world " << world;
    }
    EXPECT_EQ(reference.size(), max_samples == 0 ? 6U : 3U);
  }
}

TEST_F(LoaderTest, Evaluation_SpreadsALimitOverTheDataset) {
  const CountingDataset dataset(100);
  const EvaluationSet set(dataset, {.batch = 4, .seq_len = 3, .max_samples = 4});
  EXPECT_THAT(first_tokens(set.batch(0)), ElementsAre(0, 25, 50, 75));
  EXPECT_EQ(set.num_samples(), 4);
}

}  // namespace loader_test
}  // namespace zinc::data
