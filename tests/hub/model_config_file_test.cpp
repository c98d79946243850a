#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "files/json/parser.h"
#include "hub/family.h"
#include "hub/model_config.h"
#include "nn/models/bloom_config.h"
#include "nn/models/gpt_neox_config.h"
#include "tests/files/scratch_folder.h"

namespace zinc::hub {
namespace model_config_file_test {

ModelConfig parse(const std::string& text) {
  return parse_model_config(files::json::parse(text, "config.json"));
}

nn::LlamaConfig parse_llama(const std::string& members) {
  return parse("{\"model_type\": \"llama\", " + members + "}").as<nn::LlamaConfig>();
}

// The first line of the message: the place and the words.
std::string data_error(const std::string& text) {
  const std::string message = files::message_of<DataError>([&] { parse(text); });
  return message.substr(0, message.find('\n'));
}

// The config.json that openai-community/gpt2 has on the hub, shortened.
constexpr const char* kPublishedGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
  "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
  "summary_type": "cls_index", "task_specific_params": {"text-generation": {"max_length": 50}},
  "vocab_size": 50257})";

TEST(ModelConfigFile, PublishedGpt2_IsThePresetWithItsDropout) {
  nn::Gpt2Config expected = nn::Gpt2Config::preset("gpt2-124m");
  expected.attention_dropout = expected.residual_dropout = expected.embedding_dropout = 0.1;
  EXPECT_EQ(parse(kPublishedGpt2).as<nn::Gpt2Config>(), expected);
}

// meta-llama/Llama-3.2-1B, as transformers 4 wrote it.
constexpr const char* kPublishedLlama = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "use_cache": true, "vocab_size": 128256})";

TEST(ModelConfigFile, PublishedLlama_IsThePreset) {
  EXPECT_EQ(parse(kPublishedLlama).as<nn::LlamaConfig>(), nn::LlamaConfig::preset("llama-1b"));
}

TEST(ModelConfigFile, AbsentKeys_HaveTheDefaultsOfTransformers) {
  const auto gpt2 = parse(R"({"model_type": "gpt2", "n_inner": null})").as<nn::Gpt2Config>();
  EXPECT_EQ(gpt2.embedding_dropout, 0.1);
  EXPECT_EQ(gpt2.intermediate_size, 0);
  EXPECT_TRUE(gpt2.tie_word_embeddings);
  EXPECT_EQ(gpt2.eos_tokens, std::vector<int64_t>{50256});
  const auto llama = parse_llama("\"vocab_size\": 100");
  EXPECT_EQ(llama.vocab_size, 100);
  EXPECT_EQ(llama.kv_heads(), 32);
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(llama.bos_token, 1);
  EXPECT_EQ(llama.rope_theta, 10000.0);
  EXPECT_EQ(parse(R"({"architectures": ["GPT2LMHeadModel"]})").as<nn::Gpt2Config>().num_layers, 12);
}

TEST(ModelConfigFile, RotaryScaling_IsReadInEverySpelling) {
  const nn::RopeScaling llama3{.kind = nn::RopeScaling::Kind::llama3,
                               .factor = 8.0,
                               .low_freq_factor = 1.0,
                               .high_freq_factor = 4.0,
                               .original_max_positions = 8192};
  const std::string fields = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, )"
                             R"("original_max_position_embeddings": 8192)";
  const std::string named = "\"rope_type\": \"llama3\", " + fields;
  EXPECT_EQ(parse_llama("\"rope_scaling\": {" + named + "}").rope_scaling, llama3);
  EXPECT_EQ(parse_llama("\"rope_scaling\": {\"type\": \"llama3\", " + fields + "}").rope_scaling,
            llama3);
  const nn::LlamaConfig newer =
      parse_llama("\"rope_parameters\": {\"rope_theta\": 5e5, " + named + "}");
  EXPECT_EQ(newer.rope_scaling, llama3);
  EXPECT_EQ(newer.rope_theta, 5e5);
  const nn::LlamaConfig both =
      parse_llama("\"rope_theta\": 5e5, \"rope_scaling\": {" + named +
                  "}, \"rope_parameters\": {\"rope_theta\": 500000, " + named + "}");
  EXPECT_EQ(both.rope_scaling, llama3);
  const nn::LlamaConfig linear = parse_llama(R"("rope_scaling": {"type": "linear", "factor": 2})");
  EXPECT_EQ(linear.rope_scaling,
            (nn::RopeScaling{.kind = nn::RopeScaling::Kind::linear, .factor = 2.0}));
  EXPECT_EQ(parse_llama(R"("rope_scaling": null)").rope_scaling, nn::RopeScaling{});
  EXPECT_EQ(
      parse_llama(R"("rope_parameters": {"rope_type": "default", "rope_theta": 7})").rope_theta,
      7.0);
}

TEST(ModelConfigFile, EosTokens_MayBeAListOrNothing) {
  EXPECT_EQ(parse_llama(R"("eos_token_id": [128001, 128008])").eos_tokens,
            (std::vector<int64_t>{128001, 128008}));
  EXPECT_TRUE(parse_llama(R"("eos_token_id": null, "bos_token_id": null)").eos_tokens.empty());
  EXPECT_EQ(parse_llama(R"("bos_token_id": null)").bos_token, -1);
}

// "gpt2, llama, ..."
std::string all_families() {
  std::string names;
  for (const Family* family : families()) {
    names += (names.empty() ? "" : ", ") + family->model_type;
  }
  return names;
}

// Each family's own keys; what is absent has transformers' defaults.
TEST(ModelConfigFile, KeysOfLlamasKin_SayWhatTheyDo) {
  const auto read = [](const std::string& text) { return parse(text).as<nn::LlamaConfig>(); };
  const nn::LlamaConfig mistral = read(R"({"model_type": "mistral"})");
  EXPECT_EQ(mistral.kind, nn::LlamaKind::mistral);
  EXPECT_EQ(mistral.sliding_window, 4096);
  EXPECT_EQ(mistral.kv_heads(), 8);
  EXPECT_EQ(mistral.window_of(0), 4096);
  const nn::LlamaConfig whole =
      read(R"({"model_type": "mistral", "sliding_window": null, "num_key_value_heads": null})");
  EXPECT_EQ(whole.sliding_window, 0);
  EXPECT_EQ(whole.kv_heads(), 32);

  const nn::LlamaConfig qwen2 = read(R"({"model_type": "qwen2", "sliding_window": 64})");
  EXPECT_TRUE(qwen2.has_qkv_bias());
  EXPECT_FALSE(qwen2.attention_bias);
  EXPECT_EQ(qwen2.window_of(31), 0);
  const nn::LlamaConfig windowed =
      read(R"({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": true,)"
           R"( "max_window_layers": 1, "num_hidden_layers": 2,)"
           R"( "layer_types": ["full_attention", "sliding_attention"]})");
  EXPECT_EQ(windowed.window_of(0), 0);
  EXPECT_EQ(windowed.window_of(1), 64);
  EXPECT_EQ(parse(model_config_json(windowed, DType::f32)).as<nn::LlamaConfig>().window_of(1), 64);

  const nn::LlamaConfig qwen3 = read(R"({"model_type": "qwen3"})");
  EXPECT_TRUE(qwen3.has_head_norms());
  EXPECT_FALSE(qwen3.has_qkv_bias());
  EXPECT_EQ(qwen3.head_dim(), 128);
  EXPECT_EQ(read(R"({"architectures": ["Qwen3ForCausalLM"]})").kind, nn::LlamaKind::qwen3);
}

TEST(ModelConfigFile, OldAndNewKeysOfGptNeox_AreTheSame) {
  const auto read = [](const std::string& text) { return parse(text).as<nn::GptNeoxConfig>(); };
  const nn::GptNeoxConfig old =
      read(R"({"model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 5000,)"
           R"( "hidden_act": "gelu_fast"})");
  EXPECT_EQ(old.rotary_dims(), 48);
  EXPECT_EQ(old.activation, nn::MlpActivation::gelu_tanh);
  EXPECT_EQ(read(R"({"model_type": "gpt_neox", "hidden_act": "gelu_new", "rope_parameters":)"
                 R"( {"rope_type": "default", "rope_theta": 5000, "partial_rotary_factor": 0.5}})"),
            old);
  EXPECT_EQ(read(R"({"model_type": "gpt_neox"})").rotary_dims(), 24);
}

// bloomz-7b1's file has n_embed and num_attention_heads; a changed config changes them too.
TEST(ModelConfigFile, EverySpellingOfBloom_IsWrittenAgain) {
  const files::json::Value original = files::json::parse(
      R"({"model_type": "bloom", "n_embed": 64, "n_layer": 2, "num_attention_heads": 4})", "t");
  ModelConfig config = parse_model_config(original);
  config.as<nn::BloomConfig>().hidden_size = 128;
  config.as<nn::BloomConfig>().num_heads = 2;
  EXPECT_EQ(parse(model_config_json(config, DType::f32, original)), config);
}

struct BadConfig {
  std::string text;
  std::string message;
};

TEST(ModelConfigFile, BadInput_IsADataErrorWithItsPlace) {
  const std::vector<BadConfig> table = {
      {"[]", "config.json:1:1: expected an object, got an array"},
      {"{}", "config.json:1:1: there is no \"model_type\": not a model's config.json"},
      {R"({"model_type": "gtp2"})",
       "config.json:1:16: model_type: models of type \"gtp2\" are not supported; did you mean "
       "\"gpt2\"? zinc has " +
           all_families()},
      {R"({"model_type": "unheard_of"})",
       "config.json:1:16: model_type: models of type \"unheard_of\" are not supported; zinc has " +
           all_families()},
      {R"({"model_type": "gpt2", "n_layer": "12"})",
       "config.json:1:35: n_layer: expected an integer, got \"12\""},
      {R"({"model_type": "gpt2", "n_layer": 1e12})",
       "config.json:1:35: n_layer: expected an integer from -16384 to 16384, got "
       "1000000000000.0"},
      {R"({"model_type": "llama", "num_hidden_layers": 2000000000})",
       "config.json:1:46: num_hidden_layers: expected an integer from -16384 to 16384, got "
       "2000000000"},
      {R"({"model_type": "llama", "hidden_size": 2000000000})",
       "config.json:1:40: hidden_size: expected an integer from -1048576 to 1048576, got "
       "2000000000"},
      {R"({"model_type": "gpt2", "vocab_size": 1e12})",
       "config.json:1:38: vocab_size: expected an integer from -2147483647 to 2147483647, got "
       "1000000000000.0"},
      {R"({"model_type": "gpt2", "n_layers": 12})",
       "config.json:1:36: n_layers: unknown key; did you mean \"n_layer\"?"},
      {R"({"model_type": "llama", "hidden_sise": 12})",
       "config.json:1:40: hidden_sise: unknown key; did you mean \"hidden_size\"?"},
      {R"({"model_type": "gpt2", "activation_function": "swish"})",
       "config.json:1:47: activation_function: this activation is not supported; gelu_new, "
       "gelu_pytorch_tanh, gelu and relu are"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})",
       "config.json:1:59: scale_attn_by_inverse_layer_idx: attention that is scaled by its layer "
       "is not supported"},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})",
       "config.json:1:46: scale_attn_weights: attention without its scale is not supported"},
      {R"({"model_type": "gpt2", "add_cross_attention": true})",
       "config.json:1:47: add_cross_attention: cross-attention is not supported"},
      {R"({"model_type": "llama", "hidden_act": "gelu"})",
       "config.json:1:39: hidden_act: this activation is not supported; silu is"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 4}})",
       "config.json:1:55: rope_scaling.rope_type: this kind of rotary scaling is not supported; "
       "default, linear and llama3 are"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 4}})",
       "config.json:1:41: rope_scaling: key \"low_freq_factor\" is missing"},
      {R"({"model_type": "llama", "rope_parameters": {"partial_rotary_factor": 0.5}})",
       "config.json:1:70: rope_parameters.partial_rotary_factor: rotary embeddings of a part of "
       "the head are not supported"},
      {R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4},)"
       R"( "rope_parameters": {"rope_type": "linear", "factor": 8}})",
       "config.json:1:93: rope_parameters: rope_scaling says something else"},
      {R"({"model_type": "llama", "rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}})",
       "config.json:1:78: rope_parameters.rope_theta: the rope_theta outside says something else"},
      {R"({"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]})",
       "config.json:1:59: layer_types[1]: only windows in all layers from max_window_layers on are "
       "supported"},
      {R"({"model_type": "qwen2", "use_mrope": true})",
       "config.json:1:38: use_mrope: rotary positions of images are not supported"},
      {R"({"model_type": "gpt_neox", "rope_scaling": {"type": "dynamic", "factor": 2}})",
       "config.json:1:53: rope_scaling.type: this kind of rotary scaling is not supported; default "
       "is"},
      {R"({"model_type": "gpt_neox", "hidden_act": "silu"})",
       "config.json:1:42: hidden_act: this activation is not supported; gelu, gelu_new, gelu_fast, "
       "gelu_pytorch_tanh and relu are"},
      {R"({"model_type": "bloom", "apply_residual_connection_post_layernorm": true})",
       "config.json:1:69: apply_residual_connection_post_layernorm: residual connections behind "
       "the norms are not supported"},
      {R"({"model_type": "chatglm", "inner_hidden_size": 16384})",
       "config.json:1:48: inner_hidden_size: this is a config of the first ChatGLM, which is "
       "another model; ChatGLM2 and ChatGLM3 are supported"},
      {R"({"model_type": "chatglm", "vocab_size": 461})",
       "config.json:1:41: vocab_size: ChatGLM's key is padded_vocab_size"},
      {R"({"model_type": "chatglm", "kv_channels": 64})",
       "config.json:1:42: kv_channels: kv_channels other than hidden_size / num_attention_heads "
       "are "
       "not supported"},
      {R"({"model_type": "chatglm", "quantization_bit": 4})",
       "config.json:1:47: quantization_bit: quantised weights are not supported; take the folder "
       "with weights of 16 bits"},
      {R"({"model_type": "chatglm", "rmsnorm": false})",
       "config.json:1:38: rmsnorm: norms with means (LayerNorm) are not supported"},
      {R"({"model_type": "llama", "eos_token_id": [-1]})",
       "config.json:1:42: eos_token_id[0]: expected an integer from 0 to 2147483647, got -1"},
  };
  for (const BadConfig& bad : table) EXPECT_EQ(data_error(bad.text), bad.message);
  EXPECT_EQ(files::message_of<ConfigError>([] { parse(R"({"model_type": "gpt2", "n_head": 7})"); }),
            "config.json: gpt2 model: n_embd (768) must be a multiple of n_head (7)");
}

TEST(ModelConfigFile, WrittenConfig_ReadsBackEqual) {
  std::vector<ModelConfig> configs;
  for (const std::string& name : model_preset_names()) {
    configs.push_back(find_model_config(name).config);
  }
  nn::Gpt2Config gpt2 = nn::Gpt2Config::preset("tiny");
  gpt2.intermediate_size = 500;
  gpt2.activation = nn::Gpt2Activation::relu;
  gpt2.attention_dropout = 0.125;
  gpt2.residual_dropout = 1.0 / 3;
  gpt2.embedding_dropout = 0.25;
  gpt2.tie_word_embeddings = false;
  gpt2.eos_tokens = {1, 2};
  configs.push_back(gpt2);
  nn::LlamaConfig llama = nn::LlamaConfig::preset("llama-tiny");
  llama.rope_scaling = {.kind = nn::RopeScaling::Kind::linear, .factor = 2.5};
  llama.num_kv_heads = 3;
  llama.explicit_head_dim = 32;
  llama.attention_bias = llama.mlp_bias = true;
  llama.attention_dropout = 0.1;
  llama.rope_theta = 1234.5;
  configs.push_back(llama);
  for (const ModelConfig& config : configs) {
    const std::string text = model_config_json(config, DType::bf16);
    ModelConfig again = parse(text);
    if (auto* read = again.get_if<nn::LlamaConfig>()) {
      // Files name both, structs may leave them to their defaults.
      const auto& written = config.as<nn::LlamaConfig>();
      EXPECT_EQ(read->kv_heads(), written.kv_heads());
      EXPECT_EQ(read->head_dim(), written.head_dim());
      read->num_kv_heads = written.num_kv_heads;
      read->explicit_head_dim = written.explicit_head_dim;
    }
    EXPECT_EQ(again, config) << text;
    EXPECT_EQ(files::json::parse(text, "t").at("torch_dtype").as_string(), "bfloat16");
    EXPECT_EQ(files::json::parse(text, "t").at("dtype").as_string(), "bfloat16");
  }
}

TEST(ModelConfigFile, ForeignKeys_SurviveBeingWritten) {
  const files::ScratchFolder folder;
  folder.write("config.json", kPublishedGpt2);
  ModelConfigFile file = read_model_config(folder.path());
  set_vocabulary_size(file.config, 256);
  const files::json::Value text =
      files::json::parse(model_config_json(file.config, DType::f32, file.original), "t");
  EXPECT_EQ(text.at("vocab_size").as_int64(), 256);
  EXPECT_EQ(text.at("summary_type").as_string(), "cls_index");
  EXPECT_EQ(text.at("task_specific_params").at("text-generation").at("max_length").as_int64(), 50);
  EXPECT_EQ(text.at("torch_dtype").as_string(), "float32");
}

std::string all_presets() {
  std::string names;
  for (const std::string& name : model_preset_names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

TEST(FindModelConfig, TakesPresetsFilesAndFolders) {
  const files::ScratchFolder folder;
  const std::string path = folder.write("m/config.json", kPublishedLlama);
  EXPECT_EQ(num_parameters(find_model_config("gpt2-124m").config), 124'439'808);
  EXPECT_EQ(num_parameters(find_model_config(path).config), 1'235'814'400);
  EXPECT_EQ(model_type(find_model_config(folder / "m").config), "llama");
  EXPECT_TRUE(find_model_config("tiny").original.is_null());
  EXPECT_EQ(
      files::message_of<ConfigError>([] { find_model_config("gpt2-124"); }),
      "model \"gpt2-124\" is neither a preset nor a config.json or a folder with one; did you "
      "mean gpt2-124m?\n  presets: " +
          all_presets());
  EXPECT_THAT(files::message_of<ConfigError>([&] { find_model_config(folder / "n/config.json"); }),
              testing::HasSubstr("did you mean " + (folder / "m/config.json") + "?\n"));
  std::filesystem::create_directory(folder / "none");
  EXPECT_EQ(files::message_of<DataError>([&] { find_model_config(folder / "none"); }),
            "there is no file '" + (folder / "none/config.json") + "'");
}

}  // namespace model_config_file_test
}  // namespace zinc::hub
