// Every field of an attention, against the definition in f64; gradients against differences; a
// family that names no cache, with the cache.
#include "nn/attention/attend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "autograd/mode.h"
#include "autograd/ops/concat.h"
#include "core/error.h"
#include "nn/attention/kv_cache.h"
#include "nn/attention/sparse_attention.h"
#include "nn/gradcheck.h"
#include "tests/autograd/rank.h"
#include "tests/nn/plain_lm.h"

namespace zinc::nn {
namespace attend_test {

using ::testing::HasSubstr;
using zinc::testing::ids_tensor;
using zinc::testing::random_tensor;
using zinc::testing::Rank;

constexpr int64_t kRows = 2, kTokens = 40;
using Values = std::vector<double>;

struct Layer : AttentionLayer {
  Layer(Module& parent, const AttentionForm& form, bool with_sinks)
      : AttentionLayer(parent, "layer", form) {
    if (!with_sinks) return;
    sinks.emplace(*this, "sinks", Shape{form.heads}, autograd::Initializer::normal(1.0));
    add_sinks(*sinks);
  }
  using AttentionLayer::attend;
  std::optional<Parameter> sinks;
};

struct Case {
  const char* name;
  AttentionForm form;
  bool sinks = false;
  PositionTerms positions{};
};

// Mixes of values by the definition: for each query the softmax over the keys that it sees.
Values expected(const Case& c, const Values& q, const Values& k, const Values& v,
                const Values& sinks, const Values& bias) {
  const AttentionForm& form = c.form;
  const int64_t H = form.heads, G = form.num_kv_heads(), D = form.head_dim,
                V = form.value_features();
  const double scale = form.scale != 0.0 ? form.scale : 1.0 / std::sqrt(static_cast<double>(D));
  Values mixed;
  for (int64_t b = 0; b < kRows; ++b) {
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t h = 0; h < H; ++h) {
        const int64_t g = h / (H / G);
        Values weights;
        double sum = sinks.empty() ? 0.0 : std::exp(sinks[static_cast<size_t>(h)]);
        for (int64_t j = 0; j < kTokens; ++j) {
          double score = 0.0;
          for (int64_t d = 0; d < D; ++d) {
            score += q[static_cast<size_t>(((b * kTokens + i) * H + h) * D + d)] *
                     k[static_cast<size_t>(((b * kTokens + j) * G + g) * D + d)];
          }
          score *= scale;
          if (form.softcap > 0.0) score = form.softcap * std::tanh(score / form.softcap);
          if (!bias.empty()) {
            const int64_t heads = c.positions.bias.dim(1);
            score += bias[static_cast<size_t>(((heads == 1 ? 0 : h) * kTokens + i) * kTokens + j)];
          }
          const bool seen =
              (!form.causal || j <= i) &&
              (form.layout == nullptr || form.layout->blocks()->sees(h, i / 16, j / 16)) &&
              (c.positions.window == 0 || std::abs(i - j) < c.positions.window);
          weights.push_back(seen ? std::exp(score) : 0.0);
          sum += weights.back();
        }
        for (int64_t d = 0; d < V; ++d) {
          double value = 0.0;
          for (int64_t j = 0; j < kTokens; ++j) {
            value += weights[static_cast<size_t>(j)] / sum *
                     v[static_cast<size_t>(((b * kTokens + j) * G + g) * V + d)];
          }
          mixed.push_back(value);
        }
      }
    }
  }
  return mixed;
}

// Blocks of 16 of 40 tokens: each sees itself and the first one; head 1 itself and the last one.
std::shared_ptr<AttentionLayout> two_layouts() {
  const std::vector<uint8_t> seen{1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 1};
  return std::make_shared<AttentionLayout>(std::make_shared<const BlockLayout>(16, 2, 3, seen));
}

TEST(Attend, EveryField_MatchesTheDefinition) {
  const Rank rank;
  const Case cases[] = {
      {"plain", {.heads = 2, .head_dim = 4}},
      {"both directions", {.heads = 2, .head_dim = 4, .causal = false}},
      {"shared keys", {.heads = 4, .kv_heads = 2, .head_dim = 4}},
      {"scale", {.heads = 2, .head_dim = 4, .scale = 1.3}},
      {"softcap", {.heads = 2, .head_dim = 4, .softcap = 0.7}},
      {"small values", {.heads = 2, .head_dim = 6, .value_dim = 4}},
      {"large values", {.heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 7}},
      {"sinks", {.heads = 2, .head_dim = 4}, true},
      {"sinks and large values", {.heads = 2, .head_dim = 3, .value_dim = 5}, true},
      {"window", {.heads = 2, .head_dim = 4}, false, {.window = 3}},
      {"blocks", {.heads = 2, .head_dim = 4, .layout = two_layouts()}, true},
      {"blocks of both directions",
       {.heads = 2, .head_dim = 4, .value_dim = 3, .causal = false, .layout = two_layouts()},
       false,
       {.window = 21}},
  };
  for (const Case& c : cases) {
    for (const bool side_by_side : {false, true}) {
      SCOPED_TRACE(std::string(c.name) + (side_by_side ? ", side by side" : ""));
      const AttentionForm& form = c.form;
      Module root;
      Layer layer(root, form, c.sinks);
      root.set_dtype(DType::f64);
      root.load(InitializerSource(3));
      const int64_t G = form.num_kv_heads();
      const auto rows = [&](int64_t width, uint64_t seed) {
        return random_tensor(Shape{kRows, kTokens, width}, seed, DType::f64, -2, 2);
      };
      const Tensor q = rows(form.heads * form.head_dim, 1), k = rows(G * form.head_dim, 2),
                   v = rows(G * form.value_features(), 3);
      HeadRows given{.q = q, .k = k, .v = v};
      if (side_by_side) given = {.q = autograd::concat({q, k, v}, -1)};
      const Tensor mixed = layer.attend(given, {}, c.positions);
      Values sinks, bias;
      if (layer.sinks) sinks = layer.sinks->data().to_vector<double>();
      if (c.positions.bias.defined()) bias = c.positions.bias.to_vector<double>();
      const Values wanted = expected(c, q.to_vector<double>(), k.to_vector<double>(),
                                     v.to_vector<double>(), sinks, bias);
      const Values got = mixed.to_vector<double>();
      ASSERT_EQ(got.size(), wanted.size());
      // Sums of forty products of order 1.
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-13) << i;
    }
  }
}

TEST(Attend, GradientsOfAFamilyWithEveryField_MatchDifferences) {
  const Rank rank;
  for (const int64_t kv_heads : {4, 2}) {
    test::PlainLm model({.kv_heads = kv_heads});
    model.set_dtype(DType::f64);
    model.load(InitializerSource(5));
    Batch batch;
    batch.tensors.set("input_ids", ids_tensor({1, 5, 2, 8, 30, 2, 2, 9, 11, 4, 7, 1}, Shape{2, 6}));
    batch.tensors.set("labels", ids_tensor({5, 2, 8, 30, 2, 1, 9, 11, 4, 7, 1, 3}, Shape{2, 6}));
    batch.num_targets = 12;
    const GradcheckResult result = gradcheck(model, [&] { return model.loss(batch); });
    EXPECT_TRUE(result.ok()) << to_string(result);
  }
}

TEST(Attend, TokenByTokenWithACache_MatchesOnePass) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  test::PlainLm model;
  model.set_dtype(DType::f64);
  model.load(InitializerSource(5));
  const std::vector<int64_t> ids{1, 5, 2, 8, 30, 2, 9};
  KvCache cache(8);
  for (size_t n = 1; n <= ids.size(); ++n) {
    const std::vector<int64_t> so_far(ids.begin(), ids.begin() + static_cast<int64_t>(n));
    const Values whole =
        model.next_logits(ids_tensor(so_far, Shape{1, std::ssize(so_far)})).to_vector<double>();
    const Values next =
        model.next_logits(ids_tensor({ids[n - 1]}, Shape{1, 1}), cache).to_vector<double>();
    // Logits are f32; products of other shapes may add in another order.
    for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(next[i], whole[i], 1e-6) << n << " " << i;
  }
}

TEST(Attend, AFormThatContradictsItself_IsRefused) {
  const Rank rank;
  Module root;
  const auto message = [&](const AttentionForm& form) -> std::string {
    try {
      const Layer layer(root, form, false);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(message({.heads = 4, .kv_heads = 3, .head_dim = 8}),
              HasSubstr("layer: 4 heads cannot share 3 heads of keys and values"));
  EXPECT_THAT(message({.heads = 4}), HasSubstr("needs heads and head_dim"));
  EXPECT_THAT(message({.heads = 4, .head_dim = 8, .layout = two_layouts()}),
              HasSubstr("layer: 4 heads cannot take a layout of 2; make one of 1 or of 4"));
}

}  // namespace attend_test
}  // namespace zinc::nn
