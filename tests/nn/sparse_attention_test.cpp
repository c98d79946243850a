// Layouts of blocks in a model: which layers take them, and what they leave out.
#include "nn/attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <vector>

#include "nn/attention/attend.h"
#include "nn/models/bert.h"
#include "nn/models/gpt2.h"
#include "tests/autograd/rank.h"

namespace zinc::nn {
namespace sparse_attention_test {

using zinc::testing::Rank;

const SparsityConfig kBand{.mode = SparsityMode::local_sliding_window,
                           .attention = SparsityDirection::bidirectional,
                           .num_sliding_window_blocks = 3};

BertConfig bert_config() {
  BertConfig config;
  config.vocab_size = 50;
  config.max_positions = 64;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_layers = 2;
  config.num_heads = 3;
  return config;
}

std::vector<AttentionLayer*> layers_of(Module& model) {
  std::vector<AttentionLayer*> layers;
  for (Module* module : model.modules()) {
    if (auto* layer = dynamic_cast<AttentionLayer*>(module)) layers.push_back(layer);
  }
  return layers;
}

TEST(SparseAttention, LayersShareALayout_UnlessTheyDrawBlocks) {
  const Rank rank;
  Bert model(bert_config());
  const std::vector<AttentionLayer*> layers = layers_of(model);
  ASSERT_EQ(layers.size(), 2u);
  use_sparse_attention(model, kBand, {.tokens = 64});
  EXPECT_EQ(layers[0]->form().layout, layers[1]->form().layout);
  EXPECT_EQ(layers[0]->form().layout->blocks()->num_seen(), 4 + 2 * 3);
  const SparsityConfig random{.mode = SparsityMode::bigbird,
                              .num_global_blocks = 0,
                              .num_random_blocks = 1,
                              .num_sliding_window_blocks = 1};
  use_sparse_attention(model, random, {.tokens = 1024, .seed = 1});
  EXPECT_NE(layers[0]->form().layout->blocks()->words(),
            layers[1]->form().layout->blocks()->words());
  use_dense_attention(model);
  EXPECT_EQ(layers[0]->form().layout, nullptr);
}

TEST(SparseAttention, ACausalModel_HidesPartOfALayoutOfBothDirections) {
  const Rank rank;
  Bert bert(bert_config());
  Gpt2 gpt2(
      {.vocab_size = 50, .max_positions = 64, .hidden_size = 24, .num_layers = 1, .num_heads = 3});
  EXPECT_FALSE(hides_part_of(bert, kBand));
  EXPECT_TRUE(hides_part_of(gpt2, kBand));
  EXPECT_FALSE(hides_part_of(gpt2, {.mode = SparsityMode::local_sliding_window}));
  EXPECT_TRUE(hides_part_of(gpt2, {.mode = SparsityMode::dense}));
}

// Blocks of 16: the band of three leaves out 6 of 16 blocks, 3 of those at or before the diagonal.
TEST(SparseAttention, HiddenFlops_AreThoseOfHiddenPairs) {
  const Rank rank;
  Bert bert(bert_config());
  EXPECT_EQ(hidden_flops_per_token(bert, 64), 0.0);
  use_sparse_attention(bert, kBand, {.tokens = 64});
  EXPECT_EQ(hidden_flops_per_token(bert, 64), 12.0 * 2 * 24 * (6 * 256) / 64);
  // Of 40 positions the blocks have 16, 16 and 8.
  EXPECT_EQ(hidden_flops_per_token(bert, 40), 12.0 * 2 * 24 * (2 * 16 * 8) / 40);
  Gpt2 gpt2(
      {.vocab_size = 50, .max_positions = 64, .hidden_size = 24, .num_layers = 1, .num_heads = 3});
  use_sparse_attention(gpt2, kBand, {.tokens = 64});
  EXPECT_EQ(hidden_flops_per_token(gpt2, 64), 12.0 * 24 * (3 * 256) / 64);
}

}  // namespace sparse_attention_test
}  // namespace zinc::nn
