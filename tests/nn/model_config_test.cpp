#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "nn/models/gpt2_config.h"
#include "nn/models/llama.h"
#include "nn/models/llama_config.h"

namespace zinc::nn {
namespace model_config_test {

// Published: OpenAI's gpt2, gpt2-medium, gpt2-large and gpt2-xl, as counted by Hugging Face's
// num_parameters() on their config.json.
TEST(Gpt2Config, Presets_HaveThePublishedSizes) {
  EXPECT_EQ(Gpt2Config::preset("gpt2-124m").num_parameters(), 124'439'808);
  EXPECT_EQ(Gpt2Config::preset("gpt2-350m").num_parameters(), 354'823'168);
  EXPECT_EQ(Gpt2Config::preset("gpt2-774m").num_parameters(), 774'030'080);
  EXPECT_EQ(Gpt2Config::preset("gpt2-1.5b").num_parameters(), 1'557'611'200);
}

TEST(LlamaConfig, Presets_HaveThePublishedSizes) {
  EXPECT_EQ(LlamaConfig::preset("llama-1b").num_parameters(), 1'235'814'400);
  EXPECT_EQ(LlamaConfig::preset("llama-8b").num_parameters(), 8'030'261'248);
  EXPECT_EQ(LlamaConfig::preset("llama-70b").num_parameters(), 70'553'706'496);
}

TEST(ModelPresets, AllAreValid) {
  for (const std::string_view name : Gpt2Config::preset_names()) {
    Gpt2Config::preset(name).validate();
  }
  for (const std::string_view name : LlamaConfig::preset_names()) {
    LlamaConfig::preset(name).validate();
  }
}

// Counted by hand, for sizes that all differ: C 6, F 10, H 3, KV 1, D 4, V 7, L 2, P 5.
TEST(ModelConfigs, EverySizeCounts) {
  const Gpt2Config gpt2{.vocab_size = 7,
                        .max_positions = 5,
                        .hidden_size = 6,
                        .num_layers = 2,
                        .num_heads = 3,
                        .intermediate_size = 10};
  // wte 42, wpe 30, ln_f 12; a block: ln 24, c_attn 108 + 18, c_proj 36 + 6, fc 60 + 10,
  // c_proj 60 + 6.
  EXPECT_EQ(gpt2.num_parameters(), 42 + 30 + 12 + 2 * 328);
  Gpt2Config untied = gpt2;
  untied.tie_word_embeddings = false;
  EXPECT_EQ(untied.num_parameters(), gpt2.num_parameters() + 42);

  const LlamaConfig llama{.vocab_size = 7,
                          .hidden_size = 6,
                          .intermediate_size = 10,
                          .num_layers = 2,
                          .num_heads = 3,
                          .num_kv_heads = 1,
                          .explicit_head_dim = 4};
  // embed 42, head 42, norm 6; a block: norms 12, q 72, k 24, v 24, o 72, mlp 180.
  EXPECT_EQ(llama.num_parameters(), 42 + 42 + 6 + 2 * 384);
  LlamaConfig biased = llama;
  biased.attention_bias = true;  // q 12, k 4, v 4, o 6
  biased.mlp_bias = true;        // gate 10, up 10, down 6
  EXPECT_EQ(biased.num_parameters(), llama.num_parameters() + 2 * (26 + 26));
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Gpt2Config, BadFields_AreNamedByTheirKeys) {
  struct Case {
    std::function<void(Gpt2Config&)> change;
    std::string message;
  };
  const std::vector<Case> table = {
      {[](Gpt2Config&) {}, "(no error)"},
      {[](Gpt2Config& c) { c.vocab_size = 0; }, "gpt2 model: vocab_size must be positive, not 0"},
      {[](Gpt2Config& c) { c.max_positions = -1; },
       "gpt2 model: n_positions must be positive, not -1"},
      {[](Gpt2Config& c) { c.num_heads = 7; },
       "gpt2 model: n_embd (768) must be a multiple of n_head (7)"},
      {[](Gpt2Config& c) { c.num_heads = 0; }, "gpt2 model: n_head must be positive, not 0"},
      {[](Gpt2Config& c) { c.intermediate_size = -4; },
       "gpt2 model: n_inner must not be negative: -4"},
      {[](Gpt2Config& c) { c.layer_norm_epsilon = 0; },
       "gpt2 model: layer_norm_epsilon must be positive, not 0"},
      {[](Gpt2Config& c) { c.attention_dropout = 1.0; },
       "gpt2 model: attn_pdrop must lie in [0, 1), not 1"},
      {[](Gpt2Config& c) { c.residual_dropout = -0.5; },
       "gpt2 model: resid_pdrop must lie in [0, 1), not -0.5"},
      {[](Gpt2Config& c) { c.embedding_dropout = 2.0; },
       "gpt2 model: embd_pdrop must lie in [0, 1), not 2"},
  };
  for (const Case& bad : table) {
    Gpt2Config config;
    bad.change(config);
    EXPECT_EQ(message_of([&] { config.validate(); }), bad.message);
  }
  EXPECT_EQ(message_of([] { Gpt2Config::preset("gpt3"); }),
            "there is no GPT-2 preset \"gpt3\"; there are tiny, gpt2-124m, gpt2-350m, gpt2-774m, "
            "gpt2-1.5b");
}

// Per token 12 flops of each of the heads' elements for each key that is seen, on the average.
TEST(LlamaConfig, FlopsOfWindows_CountTheKeysThatAreSeen) {
  constexpr int64_t kLength = 1000, kWindow = 100, kWidth = 32;
  LlamaConfig config{.kind = LlamaKind::qwen2,
                     .vocab_size = 20,
                     .hidden_size = kWidth,
                     .intermediate_size = 16,
                     .num_layers = 3,
                     .num_heads = 4};
  const double whole = Llama(config).flops_per_token(kLength);
  config.sliding_window = kLength;
  EXPECT_EQ(Llama(config).flops_per_token(kLength), whole);
  config.sliding_window = kWindow;
  config.first_windowed_layer = 1;
  int64_t pairs = 0, all_pairs = 0;
  for (int64_t query = 0; query < kLength; ++query) {
    pairs += std::min(query + 1, kWindow);
    all_pairs += query + 1;
  }
  const double fewer = 2.0 * 12.0 * kWidth * static_cast<double>(all_pairs - pairs) / kLength;
  EXPECT_NEAR(whole - Llama(config).flops_per_token(kLength), fewer, 0.01 * fewer);
}

TEST(LlamaConfig, BadFields_AreNamedByTheirKeys) {
  struct Case {
    std::function<void(LlamaConfig&)> change;
    std::string message;
  };
  const std::vector<Case> table = {
      {[](LlamaConfig&) {}, "(no error)"},
      {[](LlamaConfig& c) { c.num_kv_heads = 5; },
       "llama model: num_attention_heads (32) must be a multiple of num_key_value_heads (5)"},
      {[](LlamaConfig& c) { c.num_heads = 33; },
       "llama model: hidden_size (4096) must be a multiple of num_attention_heads (33) where "
       "head_dim is not given"},
      {[](LlamaConfig& c) { c.explicit_head_dim = 33; },
       "llama model: head_dim must be even for rotary embeddings: 33"},
      {[](LlamaConfig& c) { c.rope_theta = 0; }, "llama model: rope_theta must be positive, not 0"},
      {[](LlamaConfig& c) { c.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 0.0}; },
       "llama model: rope_scaling.factor must be positive, not 0"},
      {[](LlamaConfig& c) { c.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8.0}; },
       "llama model: rope_scaling.original_max_position_embeddings must be positive, not 0"},
      {[](LlamaConfig& c) {
         c.rope_scaling = {.kind = RopeScaling::Kind::llama3,
                           .low_freq_factor = 4.0,
                           .high_freq_factor = 4.0,
                           .original_max_positions = 8192};
       },
       "llama model: rope_scaling.high_freq_factor (4) must be above "
       "rope_scaling.low_freq_factor (4)"},
  };
  for (const Case& bad : table) {
    LlamaConfig config;
    bad.change(config);
    EXPECT_EQ(message_of([&] { config.validate(); }), bad.message);
  }
  EXPECT_EQ(message_of([] { LlamaConfig::preset("llama"); }),
            "there is no Llama preset \"llama\"; there are llama-tiny, llama-1b, "
            "llama-8b, llama-70b, mistral-7b, qwen2-7b, qwen3-8b");
}

}  // namespace model_config_test
}  // namespace zinc::nn
