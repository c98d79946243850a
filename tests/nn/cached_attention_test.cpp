// Attention to the keys of earlier tokens in a KvCache, against one pass over all tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/mode.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/relative_position.h"
#include "autograd/ops/rotary.h"
#include "nn/attention/kv_cache.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace cached_attention_test {

using autograd::AttentionOptions;
using testing::random_tensor;
using testing::Rank;

constexpr int64_t kTokens = 40, kHeads = 4, kKeyHeads = 2, kSize = 8;

struct Case {
  std::string name;
  // Adds the case's terms and masks; the last of `queries` ends where the keys end.
  std::function<void(AttentionOptions& options, int64_t queries, int64_t keys)> change;
};

TEST(CachedAttention, EveryTermAndMask_MatchesOnePassOverAllTokens) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  const Tensor table = random_tensor(Shape{8, kHeads}, 7, DType::f64);
  const Tensor buckets =
      autograd::make_relative_buckets(kTokens, {.buckets = 8, .bidirectional = false});
  const Case cases[] = {
      {"causal", [](AttentionOptions&, int64_t, int64_t) {}},
      {"window", [](AttentionOptions& o, int64_t, int64_t) { o.window = 5; }},
      {"softcap", [](AttentionOptions& o, int64_t, int64_t) { o.softcap = 0.8; }},
      {"alibi", [](AttentionOptions& o, int64_t,
                   int64_t) { o.alibi_slopes = autograd::make_alibi_slopes(kHeads); }},
      {"relative positions",
       [&](AttentionOptions& o, int64_t queries, int64_t keys) {
         o.bias = autograd::relative_position_bias(table, buckets, queries, keys);
       }},
  };
  const auto rotary_table = autograd::make_rotary_table(kTokens, 4, 100.0, {}, DType::f64);
  const auto turned = [&](const Tensor& x, int64_t heads, int64_t start) {
    return autograd::rotary(x, rotary_table,
                            {.head_size = kSize,
                             .num_heads = heads,
                             .layout = autograd::RotaryLayout::interleaved,
                             .start = start});
  };
  const Tensor q = random_tensor(Shape{2, kTokens, kHeads * kSize}, 1, DType::f64, -2, 2);
  const Tensor k = random_tensor(Shape{2, kTokens, kKeyHeads * kSize}, 2, DType::f64, -2, 2);
  const Tensor v = random_tensor(Shape{2, kTokens, kKeyHeads * kSize}, 3, DType::f64);
  for (const Case& c : cases) {
    const auto attend = [&](const Tensor& queries, const Tensor& keys, const Tensor& values) {
      AttentionOptions options{.num_heads = kHeads, .num_kv_heads = kKeyHeads};
      c.change(options, queries.dim(1), keys.dim(-2));
      return autograd::attention(queries, keys, values, options);
    };
    const std::vector<double> whole =
        attend(turned(q, kHeads, 0), turned(k, kKeyHeads, 0), v).to_vector<double>();
    KvCache cache(kTokens);
    for (const int64_t count : {int64_t{7}, int64_t{1}, int64_t{1}, int64_t{20}, int64_t{11}}) {
      const int64_t start = cache.length();
      const auto part = [&](const Tensor& x) { return x.narrow_view(1, start, count); };
      const KvCache::Seen seen =
          cache.extend(turned(part(k), kKeyHeads, start), part(v), kKeyHeads);
      const Tensor out = attend(turned(part(q), kHeads, start), seen.keys, seen.values);
      cache.advance(count);
      const std::vector<double> got = out.to_vector<double>();
      for (int64_t e = 0; e < out.numel(); ++e) {
        const int64_t row = kHeads * kSize, b = e / (count * row), rest = e % (count * row);
        EXPECT_NEAR(got[static_cast<size_t>(e)],
                    whole[static_cast<size_t>((b * kTokens + start) * row + rest)], 1e-13)
            << c.name << " from " << start;
      }
    }
  }
}

}  // namespace cached_attention_test
}  // namespace zinc::nn
