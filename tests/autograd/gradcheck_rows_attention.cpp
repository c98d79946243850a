#include "autograd/ops/attention.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/relative_position.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/rotary.h"
#include "autograd/ops/split.h"
#include "tests/autograd/gradcheck_rows.h"
#include "tests/autograd/rank.h"

namespace zinc::testing {
namespace {

using autograd::AttentionOptions;
using autograd::Weight;
using Operands = std::span<const Weight>;
using Results = std::vector<Tensor>;

// B = 2, T = 5, D = 3.
void add_packed_rows(std::vector<GradcheckRow>& rows) {
  struct Case {
    const char* name;
    int64_t heads, kv_heads;
    std::function<void(AttentionOptions&)> change;
  };
  const Case cases[] = {
      {"causal", 2, 2, [](AttentionOptions&) {}},
      {"full", 2, 2, [](AttentionOptions& o) { o.causal = false; }},
      {"grouped", 4, 2, [](AttentionOptions&) {}},
      {"one key head", 3, 1, [](AttentionOptions& o) { o.scale = 0.4; }},
      {"key lengths", 2, 2,
       [](AttentionOptions& o) {
         o.causal = false;
         o.key_lengths = ids_tensor({5, 3}, Shape{2});
       }},
      {"documents", 2, 1,
       [](AttentionOptions& o) {
         o.key_begin = ids_tensor({0, 0, 2, 2, 2, 0, 1, 1, 1, 4}, Shape{2, 5});
       }},
      {"documents both ways", 2, 1,
       [](AttentionOptions& o) {
         o.causal = false;
         o.key_begin = ids_tensor({0, 0, 2, 2, 2, 0, 1, 1, 1, 4}, Shape{2, 5});
         o.key_end = ids_tensor({2, 2, 5, 5, 5, 1, 4, 4, 4, 5}, Shape{2, 5});
       }},
      {"alibi", 2, 2,
       [](AttentionOptions& o) {
         o.alibi_slopes = Tensor::from({0.5f, 0.125f}, Shape{2});
       }},
      {"window", 2, 1, [](AttentionOptions& o) { o.window = 2; }},
      {"full window", 2, 2,
       [](AttentionOptions& o) {
         o.causal = false;
         o.window = 2;
       }},
      {"softcap", 2, 1, [](AttentionOptions& o) { o.softcap = 0.7; }},
      {"softcap, alibi and lengths", 2, 2,
       [](AttentionOptions& o) {
         o.causal = false;
         o.softcap = 1.2;
         o.alibi_slopes = autograd::make_alibi_slopes(2);
         o.key_lengths = ids_tensor({5, 3}, Shape{2});
       }},
      {"dropout", 2, 1,
       [](AttentionOptions& o) {
         o.dropout = 0.3;
         o.site = 5;
       }},
  };
  for (const Case& c : cases) {
    const int64_t cols = (c.heads + 2 * c.kv_heads) * 3;
    rows.push_back({"attention",
                    str("packed ", c.name),
                    {{.shape = {2, 5, cols}, .low = -1.5, .high = 1.5}},
                    [c](Operands v) {
                      AttentionOptions options{.num_heads = c.heads, .num_kv_heads = c.kv_heads};
                      c.change(options);
                      return Results{autograd::attention(v[0].tensor(), options)};
                    }});
  }
}

void add_separate_rows(std::vector<GradcheckRow>& rows) {
  const GradcheckOperand q{.shape = {2, 3, 12}};
  const GradcheckOperand kv{.shape = {2, 5, 6}};
  rows.push_back({"attention", "queries behind keys", {q, kv, kv}, [](Operands v) {
                    return Results{autograd::attention(v[0].tensor(), v[1].tensor(), v[2].tensor(),
                                                       {.num_heads = 4, .num_kv_heads = 2})};
                  }});
  const GradcheckOperand by_head{.shape = {2, 2, 5, 3}};
  rows.push_back({"attention", "keys and values by head", {q, by_head, by_head}, [](Operands v) {
                    return Results{autograd::attention(v[0].tensor(), v[1].tensor(), v[2].tensor(),
                                                       {.num_heads = 4, .num_kv_heads = 2})};
                  }});
  rows.push_back({"attention", "another sequence's keys, lengths", {q, kv, kv}, [](Operands v) {
                    return Results{
                        autograd::attention(v[0].tensor(), v[1].tensor(), v[2].tensor(),
                                            {.num_heads = 4,
                                             .num_kv_heads = 2,
                                             .causal = false,
                                             .key_lengths = ids_tensor({2, 5}, Shape{2})})};
                  }});
  for (const Shape& bias :
       {Shape{2, 4, 3, 5}, Shape{1, 4, 3, 5}, Shape{2, 1, 3, 5}, Shape{4, 7}, Shape{1, 7}}) {
    rows.push_back(
        {"attention", str("bias ", bias), {q, kv, kv, {.shape = bias}}, [](Operands v) {
           return Results{autograd::attention(
               v[0].tensor(), v[1].tensor(), v[2].tensor(),
               {.num_heads = 4, .num_kv_heads = 2, .causal = false, .bias = v[3].tensor()})};
         }});
  }
  rows.push_back({"attention",
                  "softcap, window and bias",
                  {q, kv, kv, {.shape = Shape{4, 7}}},
                  [](Operands v) {
                    return Results{autograd::attention(v[0].tensor(), v[1].tensor(), v[2].tensor(),
                                                       {.num_heads = 4,
                                                        .num_kv_heads = 2,
                                                        .window = 3,
                                                        .softcap = 0.9,
                                                        .bias = v[3].tensor()})};
                  }});
  // One vector for each head: [B, T, heads * D] -> [B, T, heads, D] and back.
  rows.push_back({"attention",
                  "norms of q and k",
                  {q, kv, kv, {.shape = Shape{3}}, {.shape = Shape{3}}},
                  [](Operands v) {
                    const auto normed = [](const Tensor& x, const Weight& gamma) {
                      const Shape heads{x.dim(0), x.dim(1), x.dim(2) / 3, 3};
                      return autograd::reshape(
                          autograd::rmsnorm(autograd::reshape(x, heads), gamma), x.shape());
                    };
                    return Results{autograd::attention(normed(v[0].tensor(), v[3]),
                                                       normed(v[1].tensor(), v[4]), v[2].tensor(),
                                                       {.num_heads = 4, .num_kv_heads = 2})};
                  }});
  rows.push_back({"attention", "views into one buffer", {{.shape = {2, 5, 18}}}, [](Operands v) {
                    const auto parts = autograd::split(v[0].tensor(), {6, 6, 6}, 2);
                    return Results{
                        autograd::attention(parts[0], parts[1], parts[2], {.num_heads = 2})};
                  }});
}

void add_relative_position_rows(std::vector<GradcheckRow>& rows) {
  for (const bool bidirectional : {false, true}) {
    rows.push_back({"relative_position",
                    bidirectional ? "bidirectional" : "of a decoder",
                    {{.shape = {2, 3, 6}}, {.shape = {2, 5, 6}}, {.shape = {4, 2}}},
                    [bidirectional](Operands v) {
                      const Tensor buckets = autograd::make_relative_buckets(
                          6, {.buckets = 4, .max_distance = 4, .bidirectional = bidirectional});
                      return Results{autograd::attention(
                          v[0].tensor(), v[1].tensor(), v[1].tensor(),
                          {.num_heads = 2,
                           .causal = !bidirectional,
                           .bias = autograd::relative_position_bias(v[2], buckets, 3, 5)})};
                    }});
  }
}

void add_rotary_rows(std::vector<GradcheckRow>& rows) {
  using autograd::RotaryLayout;
  for (const RotaryLayout layout : {RotaryLayout::half_split, RotaryLayout::interleaved}) {
    const std::string name = layout == RotaryLayout::half_split ? "half_split" : "interleaved";
    rows.push_back({"rotary", name, {{.shape = {2, 3, 12}}}, [layout](Operands v) {
                      const auto table = autograd::make_rotary_table(8, 4, 10000.0, {}, DType::f64);
                      return Results{autograd::rotary(
                          v[0].tensor(), table,
                          {.head_size = 4, .num_heads = 2, .layout = layout, .start = 3})};
                    }});
  }
  rows.push_back({"rotary", "interleaved, part of a head", {{.shape = {2, 3, 12}}}, [](Operands v) {
                    const auto table = autograd::make_rotary_table(8, 4, 100.0, {}, DType::f64);
                    return Results{autograd::rotary(
                        v[0].tensor(), table,
                        {.head_size = 6, .num_heads = 2, .layout = RotaryLayout::interleaved})};
                  }});
  rows.push_back(
      {"rotary", "given positions, part of a head", {{.shape = {2, 3, 12}}}, [](Operands v) {
         const auto table = autograd::make_rotary_table(8, 4, 100.0, {}, DType::f64);
         return Results{
             autograd::rotary(v[0].tensor(), table,
                              {.head_size = 6,
                               .num_heads = 2,
                               .positions = ids_tensor({0, 5, 7, 1, 1, 2}, Shape{2, 3})})};
       }});
}

}  // namespace

void add_attention_rows(std::vector<GradcheckRow>& rows) {
  add_packed_rows(rows);
  add_separate_rows(rows);
  add_relative_position_rows(rows);
  add_rotary_rows(rows);
}

}  // namespace zinc::testing
