#include "kernels/chunk_tree_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace chunk_tree_sum_test {

using test::HostArray;
using testing::HasSubstr;

double tree(std::vector<double> leaf) {
  for (size_t width = 1; width < leaf.size(); width *= 2) {
    for (size_t r = 0; r + width < leaf.size(); r += 2 * width) leaf[r] = leaf[r] + leaf[r + width];
  }
  return leaf.empty() ? 0.0 : leaf[0];
}

double root_of(const HostArray& sums) {
  HostArray out(Shape{1}, DType::f64);
  chunk_tree_sum({.sums = sums, .trees = {{0, sums.numel()}}, .out = out}, test::test_stream());
  return out.at(0);
}

TEST(ChunkTreeSum, Root_IsTheTreeOfIndices) {
  for (const int64_t n : {0, 1, 2, 3, 5, 7, 8, 17, 64, 1000, 1023, 1025, 5000}) {
    const HostArray sums = HostArray::random(Shape{n}, DType::f64, 1);
    EXPECT_EQ(root_of(sums), tree(sums.values())) << n;
  }
}

TEST(ChunkSubtrees, AreMaximalAlignedAndCoverTheRange) {
  for (int64_t begin = 0; begin < 40; ++begin) {
    for (int64_t end = begin; end < 80; ++end) {
      const std::vector<ChunkSubtree> nodes = chunk_subtrees(begin, end);
      int64_t next = begin;
      for (const ChunkSubtree& node : nodes) {
        ASSERT_EQ(node.first, next);
        ASSERT_EQ(node.first % node.width, 0);
        // The next larger subtree that holds it does not fit the range.
        const int64_t parent = node.first - node.first % (2 * node.width);
        ASSERT_TRUE(parent < begin || parent + 2 * node.width > end);
        next += node.width;
      }
      ASSERT_EQ(next, end);
    }
  }
  EXPECT_LE(chunk_subtrees(1, (int64_t{1} << 40) - 1).size(), 80u);
}

TEST(ChunkTreeSum, AnyPartition_CombinesToTheBitsOfTheWhole) {
  for (const int64_t n : {1, 2, 3, 7, 8, 30, 101, 128}) {
    const HostArray sums = HostArray::random(Shape{n}, DType::f64, 2);
    const double expected = root_of(sums);
    for (const int64_t parts : {1, 2, 3, 4, 7}) {
      std::vector<ChunkSubtree> nodes;
      std::vector<double> values;
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t begin = n * p / parts;
        const int64_t end = n * (p + 1) / parts;
        const std::vector<ChunkSubtree> mine = chunk_subtrees(begin, end);
        HostArray out(Shape{static_cast<int64_t>(mine.size())}, DType::f64);
        chunk_tree_sum({.sums = sums, .trees = mine, .out = out}, test::test_stream());
        nodes.insert(nodes.end(), mine.begin(), mine.end());
        for (const double value : out.values()) values.push_back(value);
      }
      EXPECT_EQ(combine_chunk_subtrees(nodes, values), expected) << n << " in " << parts;
    }
  }
  EXPECT_EQ(combine_chunk_subtrees({}, {}), 0.0);
}

// More than one launch takes, some of no leaves, in no order.
TEST(ChunkTreeSum, ManyTrees_AreSummedEach) {
  const HostArray sums = HostArray::random(Shape{1500}, DType::f64, 3);
  const std::vector<double> all = sums.values();
  std::vector<ChunkSubtree> trees;
  std::vector<double> expected;
  for (int64_t i = 0; i < 300; ++i) {
    const ChunkSubtree range{.first = (i * 37) % 700, .width = i * 5 % 800};
    trees.push_back(range);
    const auto from = all.begin() + range.first;
    expected.push_back(tree({from, from + range.width}));
  }
  HostArray out(Shape{300}, DType::f64);
  chunk_tree_sum({.sums = sums, .trees = trees, .out = out}, test::test_stream());
  EXPECT_EQ(out.values(), expected);
}

TEST(ChunkTreeSum, BadArgumentsCostAndMetaDevice) {
  HostArray sums(Shape{5}, DType::f64);
  HostArray out(Shape{1}, DType::f64);
  const auto message = [&](const ChunkTreeSum& args) {
    return test::message_of_invalid([&] { chunk_tree_sum(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.sums = sums, .trees = {{3, 3}}, .out = out}),
              HasSubstr("a tree of [3, 6) in 5 sums"));
  EXPECT_THAT(message({.sums = sums, .trees = {{0, 4}, {4, 1}}, .out = out}),
              HasSubstr("out must have shape [2], not [1]"));
  const std::vector<ChunkSubtree> gap{{0, 2}, {4, 4}};
  const std::vector<double> values{1.0, 2.0};
  EXPECT_THAT(test::message_of_invalid([&] { combine_chunk_subtrees(gap, values); }),
              HasSubstr("does not continue at leaf 2"));
  EXPECT_THAT(
      test::message_of_invalid([&] { combine_chunk_subtrees(gap, std::span(values).first(1)); }),
      HasSubstr("2 subtrees and 1 sums"));
  EXPECT_EQ(cost(ChunkTreeSum{.sums = sums, .trees = {{0, 5}}, .out = out}).bytes(), 48);
  chunk_tree_sum({.sums = test::meta_view(Shape{5}, DType::f64),
                  .trees = {{0, 5}},
                  .out = test::meta_view(Shape{1}, DType::f64, 2)},
                 test::test_stream());
}

}  // namespace chunk_tree_sum_test
}  // namespace zinc::kernels
