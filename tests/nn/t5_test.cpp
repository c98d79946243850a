// T5: sizes, the decoder's input, recomputation over lists, generation, errors. Values against
// transformers: tests/parity.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/ops/cast.h"
#include "core/error.h"
#include "nn/attention/kv_cache.h"
#include "nn/models/t5.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace t5_test {

using testing::ids_tensor;
using testing::Rank;

T5Config tiny(bool tied = true) {
  return {.vocab_size = 11,
          .hidden_size = 8,
          .head_size = 3,
          .intermediate_size = 12,
          .num_layers = 3,
          .num_decoder_layers = 2,
          .num_heads = 2,
          .relative_buckets = 8,
          .relative_max_distance = 10,
          .activation = tied ? T5Activation::relu : T5Activation::gated_gelu_tanh,
          .tie_word_embeddings = tied,
          .decoder_start_token = 6,
          .pad_token = 0};
}

// Two texts of 4 and 2 tokens, with answers of 3 and 2.
Batch two_texts(int64_t behind = 0) {
  Batch batch;
  batch.tensors = {{"input_ids", ids_tensor({2, 5, 3, 7, 4, 9, behind, behind}, Shape{2, 4})},
                   {"lengths", ids_tensor({4, 2}, Shape{2})},
                   {"labels", ids_tensor({5, 2, 9, 8, 1, -100}, Shape{2, 3})}};
  batch.num_targets = 5;
  return batch;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(T5Presets, HaveThePublishedSizes) {
  const std::pair<const char*, int64_t> all[] = {
      {"t5-small", 60'506'624},      {"flan-t5-small", 76'961'152},
      {"flan-t5-base", 247'577'856}, {"flan-t5-large", 783'150'080},
      {"flan-t5-xl", 2'849'757'184}, {"flan-t5-xxl", 11'135'332'352}};
  for (const auto& [name, count] : all) {
    const T5Config config = T5Config::preset(name);
    EXPECT_EQ(config.num_parameters(), count) << name;
    EXPECT_EQ(T5(config).num_parameters(), count) << name;
  }
  EXPECT_EQ(std::size(all), T5Config::preset_names().size());
  EXPECT_THROW(T5Config::preset("t5-tiny"), ConfigError);
}

TEST(T5Config, CountsTheWeightsOfBothVersions) {
  for (const bool tied : {true, false}) {
    EXPECT_EQ(T5(tiny(tied)).num_parameters(), tiny(tied).num_parameters());
    T5Config deeper = tiny(tied);
    deeper.num_decoder_layers = 0;  // as many as the encoder has
    EXPECT_EQ(T5(deeper).num_parameters(), deeper.num_parameters());
    EXPECT_GT(deeper.num_parameters(), tiny(tied).num_parameters());
  }
}

TEST(T5, DecoderReadsTheLabelsOnePlaceLater) {
  const Rank rank;
  T5 model(tiny());
  const double loss = model.loss(two_texts()).item();
  const auto loss_with = [&](const std::vector<int64_t>& ids) {
    Batch batch = two_texts();
    batch.tensors.set("decoder_input_ids", ids_tensor(ids, Shape{2, 3}));
    return model.loss(batch).item();
  };
  EXPECT_EQ(loss, loss_with({6, 5, 2, 6, 8, 1}));
  EXPECT_NE(loss, loss_with({6, 5, 3, 6, 8, 1}));

  Batch hole = two_texts();
  hole.tensors.set("labels", ids_tensor({5, -100, 9, 8, 1, -100}, Shape{2, 3}));
  const double with_hole = model.loss(hole).item();
  hole.tensors.set("decoder_input_ids", ids_tensor({6, 5, 0, 6, 8, 1}, Shape{2, 3}));
  EXPECT_EQ(with_hole, model.loss(hole).item());

  Batch one = two_texts();
  one.tensors.set("labels", ids_tensor({5, 8}, Shape{2, 1}));
  EXPECT_GT(model.loss(one).item(), 0.0);
}

TEST(T5, TokensBehindATextsEndCountForNothing) {
  const Rank rank;
  T5 model(tiny(false));
  EXPECT_EQ(model.loss(two_texts(0)).item(), model.loss(two_texts(8)).item());
}

std::vector<double> all_gradients(T5& model) {
  std::vector<double> all;
  for (const auto& [name, parameter] : model.named_parameters()) {
    for (const double value : parameter->grad()->to_vector<double>()) all.push_back(value);
  }
  return all;
}

TEST(T5, RecomputationOverBothStacksChangesNoBit) {
  const Rank rank;
  for (const bool tied : {true, false}) {
    T5Config config = tiny(tied);
    config.dropout = 0.2;
    T5 model(config);
    std::vector<double> reference;
    for (const int64_t every : {0, 1, 2, 3}) {
      model.set_recompute_every(every);
      model.zero_grad();
      Context::current().random().restore({});
      autograd::backward(model.loss(two_texts()));
      if (every == 0) reference = all_gradients(model);
      EXPECT_EQ(all_gradients(model), reference) << "every " << every;
    }
  }
}

TEST(T5, StagesTurnOverBetweenTheStacks) {
  const Rank rank;
  T5 model(tiny());
  ASSERT_EQ(model.num_stages(), 3 + 3 + 2);
  std::vector<int64_t> blocks;
  TensorList x;
  const size_t lists[] = {2, 3, 3, 3, 2, 3, 3, 1};
  for (int64_t i = 0; i < 8; ++i) {
    if (model.is_block(i)) blocks.push_back(i);
    x = model.stage(i, two_texts(), std::move(x));
    EXPECT_EQ(x.size(), lists[i]) << i;
  }
  EXPECT_EQ(blocks, (std::vector<int64_t>{1, 2, 3, 5, 6}));
  EXPECT_EQ(x[0].item(), model.loss(two_texts()).item());
  EXPECT_EQ(model.num_blocks(), 5);
}

TEST(T5, DropoutIsOfTrainingAlone) {
  const Rank rank;
  for (const bool tied : {true, false}) {
    const double loss = T5(tiny(tied)).loss(two_texts()).item();
    T5Config config = tiny(tied);
    config.dropout = 0.3;
    T5 model(config);
    EXPECT_NE(model.loss(two_texts()).item(), loss);
    model.eval();
    EXPECT_EQ(model.loss(two_texts()).item(), loss);
  }
}

TEST(T5, CachedPassesGiveTheLogitsOfOnePass) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  for (const bool tied : {true, false}) {
    T5 model(tiny(tied));
    model.set_dtype(DType::f64);
    Batch batch = two_texts();
    const Tensor ids = ids_tensor({6, 5, 2, 7, 6, 8, 1, 3}, Shape{2, 4});
    batch.tensors.set("decoder_input_ids", ids);
    batch.tensors.set("labels", {});
    const auto all = model.outputs(batch)["logits"].to_vector<double>();
    KvCache cache(4);
    model.encode(batch, cache);
    for (int repeat = 0; repeat < 2; ++repeat) {
      int64_t seen = 0;
      for (const int64_t count : {int64_t{2}, int64_t{1}, int64_t{1}}) {
        const Tensor logits =
            model.next_logits(autograd::contiguous(ids.narrow_view(1, seen, count)), cache);
        seen += count;
        const auto got = logits.to_vector<double>();
        for (size_t b = 0; b < 2; ++b) {
          for (size_t v = 0; v < 11; ++v) {
            EXPECT_NEAR(got[b * 11 + v], all[(b * 4 + static_cast<size_t>(seen) - 1) * 11 + v],
                        1e-6);
          }
        }
      }
      cache.clear();  // forgets tokens; the source stays
    }
  }
}

TEST(T5, GenerationNeedsASource) {
  const Rank rank;
  const autograd::NoGrad no_grad;
  T5 model(tiny());
  KvCache cache(4);
  const Tensor start = ids_tensor({6}, Shape{1, 1});
  EXPECT_EQ(message_of([&] { model.next_logits(start, cache); }),
            "KvCache: there is no source; let the model encode() the texts into the "
            "cache first");
  EXPECT_EQ(find_interface<CausalLm>(model), nullptr);
}

TEST(T5, SaysThatItOverflowsInF16Alone) {
  const T5 model(tiny());
  EXPECT_NE(model.note_on(DType::f16).find("prefer bf16"), std::string_view::npos);
  EXPECT_EQ(model.note_on(DType::bf16), "");
  EXPECT_EQ(model.note_on(DType::f32), "");
}

// C 8, I 6, F 12, V 11, 3 and 2 layers, T 4. Products of a token: encoder 3 * (4 * 48 + 2 * 96),
// decoder 2 * (8 * 48 + 2 * 96), head 88.
TEST(T5, FlopsCountBothStacksAndTheHead) {
  const double attention = 12.0 * (3 + 2) * 6 * 4 + 6.0 * 2 * 6 * 4;
  EXPECT_EQ(T5(tiny()).flops_per_token(4), 6.0 * (3 * 384 + 2 * 576 + 88) + attention);
  EXPECT_EQ(T5(tiny(false)).flops_per_token(4), 6.0 * (3 * 480 + 2 * 672 + 88) + attention);
}

TEST(T5, WhatDoesNotFitIsAnErrorWithItsCure) {
  const Rank rank;
  T5 model(tiny());
  Batch batch = two_texts();
  batch.tensors.set("decoder_input_ids", ids_tensor({6, 5, 6, 8}, Shape{2, 2}));
  EXPECT_EQ(message_of([&] { model.loss(batch); }),
            "t5: labels [2, 3] must be as many as the decoder_input_ids, 2 a text; leave "
            "decoder_input_ids out to have them made of the labels");
  batch = two_texts();
  batch.tensors.set("labels", ids_tensor({0, 1}, Shape{2}));
  EXPECT_EQ(message_of([&] { model.loss(batch); }),
            "t5: labels must be [B, T] with T >= 1, not [2]");

  const auto message = [](const std::function<void(T5Config&)>& change) {
    T5Config config = tiny();
    change(config);
    return message_of([&] { config.validate(); });
  };
  EXPECT_EQ(message([](T5Config&) {}), "");
  EXPECT_EQ(message([](T5Config& c) { c.relative_buckets = 5; }),
            "t5 model: relative_attention_num_buckets must be even and 4 or more, not 5");
  EXPECT_EQ(message([](T5Config& c) { c.relative_max_distance = 4; }),
            "t5 model: relative_attention_max_distance must be more than half of "
            "relative_attention_num_buckets, not 4");
  EXPECT_EQ(message([](T5Config& c) { c.decoder_start_token = 11; }),
            "t5 model: decoder_start_token_id must be a token of the vocabulary, not 11");
}

}  // namespace t5_test
}  // namespace zinc::nn
