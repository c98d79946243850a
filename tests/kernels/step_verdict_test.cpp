#include "kernels/step_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/chunk_tree_sum.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace step_verdict_test {

using test::HostArray;
using testing::HasSubstr;

// Parameters of some chunks each, dealt to ranks in equal shares of all chunks.
struct Problem {
  std::vector<int64_t> chunks = {1, 7, 300, 2, 64, 5};
  int64_t ranks = 1;
  std::vector<std::vector<int64_t>> targets{{3, 4, 5}};  // by rank
  LossScaleRules rules;
  LossScaleState scale;
  bool by_token = true;
  bool check_overflow = true;
  double clipping = 0.5;
  double wire_divisor = 1.0;
  double bad = 0.0;  // takes the place of leaf `bad_leaf`
  int64_t bad_leaf = -1;
  bool stop_at_nonfinite_loss = false;
  float bad_loss = 1.0f;  // of the micro-batch `bad_batch` of the last rank; the others have 1.5
  size_t bad_batch = 0;
};

struct Answer {
  StepVerdict verdict;
  LossScaleState scale;
  std::vector<int64_t> headers;
};

HostArray integers(const std::vector<int64_t>& values, const Shape& shape) {
  HostArray array(shape, DType::i64);
  std::memcpy(array.on_host().data(), values.data(), values.size() * sizeof(int64_t));
  return array;
}

// Sets expected.sum_of_squares by the function that the host calls.
Answer run(const Problem& problem, double& expected_sum) {
  std::vector<int64_t> sources, merges, parameters;
  std::vector<std::vector<double>> sums(static_cast<size_t>(problem.ranks));
  std::vector<std::pair<size_t, size_t>> places;
  expected_sum = 0.0;
  int64_t leaf = 0;
  for (const int64_t chunks : problem.chunks) {
    parameters.insert(parameters.end(), {leaf, static_cast<int64_t>(merges.size() / 2)});
    const int64_t first = leaf;
    std::vector<ChunkSubtree> nodes;
    std::vector<double> values;
    for (int64_t rank = 0; rank < problem.ranks; ++rank) {
      const int64_t begin = chunks * rank / problem.ranks;
      const int64_t end = chunks * (rank + 1) / problem.ranks;
      for (const ChunkSubtree& node : chunk_subtrees(begin, end)) {
        nodes.push_back(node);
        auto& own = sums[static_cast<size_t>(rank)];
        own.push_back(leaf == problem.bad_leaf ? problem.bad : 1.0 / (1.0 + 0.37 * double(leaf)));
        values.push_back(own.back());
        places.emplace_back(static_cast<size_t>(rank), own.size() - 1);
        ++leaf;
      }
    }
    for (const SubtreeMerge& merge : chunk_subtree_merges(nodes)) {
      merges.insert(merges.end(), {first + merge.left, first + merge.right});
    }
    expected_sum += combine_chunk_subtrees(nodes, values);
  }
  const auto num_merges = static_cast<int64_t>(merges.size() / 2);
  parameters.insert(parameters.end(), {leaf, num_merges});
  size_t longest = 0;
  for (const auto& own : sums) longest = std::max(longest, own.size());
  for (const auto& [rank, place] : places) {
    sources.push_back(static_cast<int64_t>(rank * longest + place));
  }
  const size_t batches = problem.targets.front().size();
  const size_t headers = batches + (batches + 1) / 2;
  const size_t words = headers + longest;
  std::vector<int64_t> gathered(words * sums.size());
  for (size_t rank = 0; rank < sums.size(); ++rank) {
    for (size_t b = 0; b < batches; ++b) gathered[rank * words + b] = problem.targets[rank][b];
    std::vector<float> losses(batches, 1.5f);
    if (rank + 1 == sums.size()) losses[problem.bad_batch] = problem.bad_loss;
    std::memcpy(&gathered[rank * words + batches], losses.data(), batches * sizeof(float));
    for (size_t i = 0; i < sums[rank].size(); ++i) {
      gathered[rank * words + headers + i] = std::bit_cast<int64_t>(sums[rank][i]);
    }
  }
  HostArray all(Shape{static_cast<int64_t>(gathered.size())}, DType::f64);
  std::memcpy(all.on_host().data(), gathered.data(), gathered.size() * sizeof(int64_t));
  HostArray scale(Shape{static_cast<int64_t>(sizeof(LossScaleState))}, DType::u8);
  std::memcpy(scale.on_host().data(), &problem.scale, sizeof(problem.scale));
  HostArray leaves(Shape{leaf}, DType::f64);
  const size_t header_words = headers * sums.size();
  HostArray out(Shape{static_cast<int64_t>(sizeof(StepVerdict) + 8 * header_words)}, DType::u8);
  decide_step({.gathered = all,
               .words = static_cast<int64_t>(words),
               .num_headers = static_cast<int64_t>(headers),
               .num_batches = static_cast<int64_t>(batches),
               .longest = static_cast<int64_t>(longest),
               .sources = integers(sources, Shape{leaf}),
               .merges = integers(merges, Shape{num_merges, 2}),
               .parameters = integers(parameters, Shape{std::ssize(problem.chunks) + 1, 2}),
               .by_token = problem.by_token,
               .check_overflow = problem.check_overflow,
               .stop_at_nonfinite_loss = problem.stop_at_nonfinite_loss,
               .clipping = problem.clipping,
               .wire_divisor = problem.wire_divisor,
               .rules = problem.rules,
               .leaves = leaves,
               .scale = scale,
               .out = out},
              test::test_stream());
  const auto bytes = [](const HostArray& array) {
    std::vector<uint8_t> read;
    for (const double value : array.values()) read.push_back(static_cast<uint8_t>(value));
    return read;
  };
  Answer answer;
  std::memcpy(&answer.scale, bytes(scale).data(), sizeof(answer.scale));
  const std::vector<uint8_t> left = bytes(out);
  std::memcpy(&answer.verdict, left.data(), sizeof(answer.verdict));
  answer.headers.resize(header_words);
  std::memcpy(answer.headers.data(), left.data() + sizeof(StepVerdict), 8 * header_words);
  return answer;
}

TEST(StepVerdict, NormAndFactor_AreThoseOfTheHost) {
  for (const int64_t ranks : {1, 2, 3}) {
    for (const double clipping : {0.0, 0.5, 1e6}) {
      Problem problem{.ranks = ranks};
      problem.targets.assign(static_cast<size_t>(ranks), {3, 4, 5});
      problem.clipping = clipping;
      problem.scale.scale = 1024.0;
      problem.wire_divisor = 3.0;
      double sum = 0.0;
      const Answer answer = run(problem, sum);
      EXPECT_EQ(answer.verdict.sum_of_squares, sum);
      EXPECT_EQ(answer.verdict.count, 12.0 * static_cast<double>(ranks));
      EXPECT_EQ(answer.verdict.first_nonfinite, -1);
      EXPECT_EQ(answer.verdict.skip, 0);
      const double divisor = 1024.0 * answer.verdict.count / 3.0;
      EXPECT_EQ(answer.verdict.factor, update_factor(std::sqrt(sum), divisor, clipping));
      EXPECT_EQ(answer.headers[0], 3);
      EXPECT_EQ(answer.headers[3],
                std::bit_cast<int64_t>(std::array{ranks == 1 ? 1.0f : 1.5f, 1.5f}));
    }
  }
}

TEST(StepVerdict, Count_IsOfMicroBatchesWhereTheLossIsAMeanOfMeans) {
  Problem problem{.ranks = 2, .targets = {{3, 4, 5}, {0, 0, 1}}};
  double sum = 0.0;
  EXPECT_EQ(run(problem, sum).verdict.count, 13.0);
  problem.by_token = false;
  EXPECT_EQ(run(problem, sum).verdict.count, 6.0);
}

TEST(StepVerdict, FirstLeafThatIsNotFinite_SkipsAndHalvesTheScale) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const int64_t leaf : {0, 3, 11}) {
      Problem problem{.bad = bad, .bad_leaf = leaf};
      problem.rules = {.dynamic = true, .hysteresis = 1, .window = 10, .min_scale = 1.0};
      problem.scale.scale = 64.0;
      double sum = 0.0;
      const Answer answer = run(problem, sum);
      EXPECT_EQ(answer.verdict.first_nonfinite, leaf);
      EXPECT_EQ(answer.verdict.skip, 1);
      EXPECT_EQ(answer.verdict.at_minimum, 0);
      EXPECT_EQ(answer.verdict.scale.scale, 32.0);
      EXPECT_EQ(answer.scale.scale, 32.0);
      EXPECT_EQ(answer.scale.steps, 1);
      EXPECT_EQ(answer.scale.last_overflow, 0);
      problem.check_overflow = false;
      EXPECT_EQ(run(problem, sum).verdict.skip, 0);
      EXPECT_EQ(run(problem, sum).verdict.factor, static_cast<float>(1.0 / (64.0 * 12.0)));
      problem.check_overflow = true;
      problem.scale.scale = 1.0;
      EXPECT_EQ(run(problem, sum).verdict.at_minimum, 1);
    }
  }
}

TEST(StepVerdict, LossThatIsNotFinite_WithholdsAndLeavesTheScale) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t batch : {0, 2}) {
      Problem problem{.ranks = 2, .targets = {{3, 4, 5}, {3, 4, 5}}};
      problem.rules = {.dynamic = true, .window = 1};
      problem.stop_at_nonfinite_loss = true;
      double sum = 0.0;
      EXPECT_EQ(run(problem, sum).verdict.withheld, 0);
      problem.bad_loss = bad;
      problem.bad_batch = batch;
      const Answer answer = run(problem, sum);
      EXPECT_EQ(answer.verdict.withheld, 1);
      EXPECT_EQ(answer.verdict.skip, 1);
      EXPECT_EQ(answer.scale.steps, 0);
      // An overflow is skipped as one.
      problem.bad_leaf = 3;
      problem.bad = bad;
      EXPECT_EQ(run(problem, sum).verdict.withheld, 0);
      EXPECT_EQ(run(problem, sum).verdict.skip, 1);
      EXPECT_EQ(run(problem, sum).scale.steps, 1);
      problem.check_overflow = false;
      EXPECT_EQ(run(problem, sum).verdict.withheld, 1);
      problem.stop_at_nonfinite_loss = false;
      EXPECT_EQ(run(problem, sum).verdict.skip, 0);
      // A mean over no target is nobody's.
      problem.stop_at_nonfinite_loss = true;
      problem.targets[1][batch] = 0;
      EXPECT_EQ(run(problem, sum).verdict.withheld, 1);
      problem.by_token = false;
      EXPECT_EQ(run(problem, sum).verdict.withheld, 0);
    }
  }
}

// More parameters, leaves and micro-batches than a block of the GPU has threads.
TEST(StepVerdict, ManyParameters_TakeMoreThanOneTurn) {
  Problem problem{.chunks = std::vector<int64_t>(600, 1), .ranks = 2};
  problem.chunks[17] = 300;
  problem.targets.assign(2, std::vector<int64_t>(700, 2));
  problem.scale.scale = 8.0;
  double sum = 0.0;
  const Answer answer = run(problem, sum);
  EXPECT_EQ(answer.verdict.sum_of_squares, sum);
  EXPECT_EQ(answer.verdict.count, 2.0 * 2 * 700);
  EXPECT_EQ(answer.verdict.first_nonfinite, -1);
  EXPECT_EQ(answer.headers[699], 2);
  for (const int64_t leaf : {300, 599}) {
    problem.bad = std::numeric_limits<double>::infinity();
    problem.bad_leaf = leaf;
    EXPECT_EQ(run(problem, sum).verdict.first_nonfinite, leaf);
  }
}

TEST(StepVerdict, WithoutATarget_SkipsAndLeavesTheScale) {
  Problem problem{.targets = {{0, 0}}};
  problem.rules = {.dynamic = true, .window = 1};
  double sum = 0.0;
  const Answer answer = run(problem, sum);
  EXPECT_EQ(answer.verdict.skip, 1);
  EXPECT_EQ(answer.verdict.count, 0.0);
  EXPECT_EQ(answer.scale.steps, 0);
}

TEST(StepVerdict, WrongSizes_AreRefused) {
  const View sums = test::meta_view(Shape{8}, DType::f64);
  DecideStep args{.gathered = sums, .words = 8, .num_headers = 4, .num_batches = 2, .longest = 3};
  EXPECT_THAT(test::message_of_invalid([&] { decide_step(args, test::test_stream()); }),
              HasSubstr("decide_step: 2 batches, 4 headers and 3 sums do not make 8 words"));
}

}  // namespace step_verdict_test
}  // namespace zinc::kernels
