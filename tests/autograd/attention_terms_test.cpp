// Windows, caps, biases by distance and T5's buckets beside what they stand for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/relative_position.h"
#include "core/error.h"
#include "tests/autograd/rank.h"

namespace zinc::autograd {
namespace attention_terms_test {

using testing::ids_tensor;
using testing::random_tensor;
using testing::Rank;
using Values = std::vector<double>;

constexpr int64_t kBatch = 2, kQueries = 150, kKeys = 170, kHeads = 2, kSize = 8;

struct Result {
  Values out, dq, dk, dv, dbias;
};

// `change` gives the options; a bias among them has a gradient.
Result run(DType dtype, const std::function<void(AttentionOptions&)>& change) {
  const auto input = [&](int64_t tokens, uint64_t seed) {
    Tensor x = random_tensor(Shape{kBatch, tokens, kHeads * kSize}, seed, dtype, -2, 2);
    requires_grad_(x);
    return x;
  };
  const Tensor q = input(kQueries, 1), k = input(kKeys, 2), v = input(kKeys, 3);
  AttentionOptions options{.num_heads = kHeads};
  change(options);
  if (options.bias.defined()) requires_grad_(options.bias);
  const Tensor out = attention(q, k, v, options);
  backward(out, random_tensor(out.shape(), 4, dtype));
  Result result{out.to_vector<double>(),
                grad(q).to_vector<double>(),
                grad(k).to_vector<double>(),
                grad(v).to_vector<double>(),
                {}};
  if (options.bias.defined()) result.dbias = grad(options.bias).to_vector<double>();
  return result;
}

void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.dq, b.dq);
  EXPECT_EQ(a.dk, b.dk);
  EXPECT_EQ(a.dv, b.dv);
}

TEST(AttentionTerms, Window_IsThatOfBoundsGivenByValue) {
  const Rank rank;
  for (const bool causal : {true, false}) {
    std::vector<int64_t> begin, end;
    for (int64_t e = 0; e < kBatch * kQueries; ++e) {
      const int64_t position = e % kQueries + kKeys - kQueries;
      begin.push_back(std::max<int64_t>(0, position - 29));
      end.push_back(std::min(kKeys, position + 30));
    }
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      expect_same_bits(run(dtype,
                           [&](AttentionOptions& o) {
                             o.causal = causal;
                             o.window = 30;
                           }),
                       run(dtype, [&](AttentionOptions& o) {
                         o.causal = causal;
                         o.key_begin = ids_tensor(begin, Shape{kBatch, kQueries});
                         o.key_end = ids_tensor(end, Shape{kBatch, kQueries});
                       }));
    }
  }
}

TEST(AttentionTerms, BiasByDistance_IsThatOfItsMatrix) {
  const Rank rank;
  constexpr int64_t kDistances = kQueries + kKeys - 1;
  const Values by_distance = testing::random_values(kHeads * kDistances, 5);
  Values matrix;
  for (int64_t e = 0; e < kHeads * kQueries * kKeys; ++e) {
    const int64_t h = e / (kQueries * kKeys), i = e / kKeys % kQueries, j = e % kKeys;
    matrix.push_back(by_distance[static_cast<size_t>(h * kDistances + kQueries - 1 + j - i)]);
  }
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const Result one = run(dtype, [&](AttentionOptions& o) {
      o.bias = Tensor::from(by_distance, Shape{kHeads, kDistances}, wide);
    });
    const Result other = run(dtype, [&](AttentionOptions& o) {
      o.bias = Tensor::from(matrix, Shape{1, kHeads, kQueries, kKeys}, wide);
    });
    expect_same_bits(one, other);
    Values along(by_distance.size(), 0.0), size = along;
    for (int64_t e = 0; e < kHeads * kQueries * kKeys; ++e) {
      const int64_t h = e / (kQueries * kKeys), i = e / kKeys % kQueries, j = e % kKeys;
      const auto at = static_cast<size_t>(h * kDistances + kQueries - 1 + j - i);
      along[at] += other.dbias[static_cast<size_t>(e)];
      size[at] += std::abs(other.dbias[static_cast<size_t>(e)]);
    }
    for (size_t e = 0; e < along.size(); ++e) {
      // The same terms, up to 300 of them, summed in another order.
      EXPECT_NEAR(one.dbias[e], along[e], 300 * (dtype == DType::f64 ? 1e-16 : 6e-8) * size[e]);
    }
  }
}

// Far from the cap tanh is the identity up to x^3 / 3; near it nothing passes the cap.
TEST(AttentionTerms, Softcap_BoundsScores) {
  const Rank rank;
  const Result plain = run(DType::f64, [](AttentionOptions&) {});
  const Result high = run(DType::f64, [](AttentionOptions& o) { o.softcap = 1e5; });
  for (size_t i = 0; i < plain.dq.size(); ++i) EXPECT_NEAR(high.dq[i], plain.dq[i], 1e-7);
  // Scores of nearly nothing: means of what is seen.
  const Result low = run(DType::f64, [](AttentionOptions& o) {
    o.causal = false;
    o.softcap = 1e-9;
  });
  for (size_t i = 0; i < kHeads * kSize; ++i)
    EXPECT_NEAR(low.out[i], low.out[i + kHeads * kSize], 1e-6);
}

// Computed by hand from the formula: exact up to 8 (16 for a decoder), then logarithmic up to 128.
TEST(RelativeBuckets, AreThoseOfT5) {
  const auto bucket = [](int64_t distance, bool bidirectional) {
    return relative_bucket(distance, {.bidirectional = bidirectional});
  };
  const std::pair<int64_t, int64_t> both[] = {
      {0, 0},    {-1, 1},  {1, 17},   {-7, 7},   {7, 23},    {-8, 8},   {-15, 9},
      {-16, 10}, {16, 26}, {-32, 12}, {-64, 14}, {-127, 15}, {128, 31}, {-5000, 15}};
  for (const auto& [distance, expected] : both) EXPECT_EQ(bucket(distance, true), expected);
  const std::pair<int64_t, int64_t> decoder[] = {{0, 0},    {5, 0},    {-1, 1},    {-15, 15},
                                                 {-16, 16}, {-31, 21}, {-128, 31}, {-999, 31}};
  for (const auto& [distance, expected] : decoder) EXPECT_EQ(bucket(distance, false), expected);
}

TEST(RelativePositionBias, IsTheTableByDistance) {
  const Rank rank;
  const RelativeBuckets options{.buckets = 8, .max_distance = 6};
  const Tensor table = random_tensor(Shape{8, 3}, 1);
  const Tensor buckets = make_relative_buckets(9, options);
  const Values rows = table.to_vector<double>();
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{9, 9}, {1, 6}, {4, 7}, {5, 2}}) {
    const Tensor bias = relative_position_bias(table, buckets, queries, keys);
    ASSERT_EQ(bias.shape(), (Shape{3, queries + keys - 1}));
    const Values values = bias.to_vector<double>();
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t bucket = relative_bucket(j - (i + keys - queries), options);
        for (int64_t h = 0; h < 3; ++h) {
          EXPECT_EQ(values[static_cast<size_t>(h * (queries + keys - 1) + queries - 1 + j - i)],
                    rows[static_cast<size_t>(bucket * 3 + h)]);
        }
      }
    }
  }
  EXPECT_THROW(relative_position_bias(table, buckets, 10, 9), InvalidArgument);
  EXPECT_THROW(make_relative_buckets(9, {.buckets = 32, .max_distance = 8}), InvalidArgument);
  EXPECT_THROW(make_relative_buckets(9, {.buckets = 2}), InvalidArgument);
}

// The paper's geometric sequences; for 12 heads those that its code gives.
TEST(AlibiSlopes, AreThePublished) {
  const Rank rank;
  EXPECT_EQ(make_alibi_slopes(4).to_vector<double>(),
            (Values{1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256}));
  const Values twelve = make_alibi_slopes(12).to_vector<double>();
  for (size_t h = 0; h < 8; ++h) EXPECT_EQ(twelve[h], std::exp2(-static_cast<double>(h + 1)));
  for (size_t h = 8; h < 12; ++h) {
    EXPECT_FLOAT_EQ(static_cast<float>(twelve[h]), std::exp2(-static_cast<float>(h - 8) - 0.5f));
  }
}

TEST(AttentionTerms, MetaDevice_TakesTheSameMemory) {
  const auto peak = [](const Device& device) {
    Rank rank({.device = device, .num_threads = 2});
    Tensor table = random_tensor(Shape{8, kHeads}, 1);
    requires_grad_(table);
    const Tensor buckets = make_relative_buckets(kKeys, {.buckets = 8});
    Tensor q = Tensor::zeros(Shape{kBatch, kQueries, kHeads * kSize}, DType::bf16);
    requires_grad_(q);
    const Tensor k = Tensor::zeros(Shape{kBatch, kKeys, kHeads * kSize}, DType::bf16);
    const Tensor out = attention(q, k, k,
                                 {.num_heads = kHeads,
                                  .window = 40,
                                  .softcap = 3.0,
                                  .alibi_slopes = make_alibi_slopes(kHeads),
                                  .bias = relative_position_bias(table, buckets, kQueries, kKeys)});
    backward(out, Tensor::zeros(out.shape(), out.dtype()));
    const MemoryReport report = rank.context.allocator().report();
    return std::pair(report.at(Tier::device).peak, report.at(Tier::device, Label::workspace).peak);
  };
  EXPECT_EQ(peak(kCpu), peak(Device{.meta = true}));
  EXPECT_GT(peak(kCpu).second, 0);
}

TEST(AttentionTerms, WrongOptions_AreNamedWithShapes) {
  const Rank rank;
  const Tensor q = Tensor::zeros(Shape{2, 3, 8}), k = Tensor::zeros(Shape{2, 5, 8});
  const auto message = [&](const AttentionOptions& options) -> std::string {
    try {
      attention(q, k, k, options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.num_heads = 2, .bias = Tensor::zeros(Shape{2, 8})}),
            "attention: bias must be [2 or 1, 2 or 1, 3, 5] or, by distance, [2 or 1, 7], "
            "not [2, 8]");
  EXPECT_EQ(message({.num_heads = 2, .window = -3}),
            "attention: the window must be 0 (none) or positive, not -3");
  EXPECT_EQ(message({.num_heads = 2, .softcap = -1.0}),
            "attention: softcap must be 0 (none) or positive and finite, not -1");
}

}  // namespace attention_terms_test
}  // namespace zinc::autograd
