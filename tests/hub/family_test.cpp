#include "hub/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "files/json/parser.h"
#include "hub/json_fields.h"
#include "hub/model.h"
#include "hub/model_config.h"
#include "nn/models/gpt2.h"
#include "tests/files/scratch_folder.h"

namespace zinc::hub {
namespace family_test {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Families, EveryBuiltinRow_IsFoundByItsNames) {
  std::set<std::string> presets;
  for (const Family* family : families()) {
    SCOPED_TRACE(family->model_type);
    EXPECT_EQ(find_family(family->model_type), family);
    ASSERT_FALSE(family->architectures.empty());
    EXPECT_EQ(find_family_of_architecture(family->architectures.front()), family);
    for (const FamilyPreset& preset : family->presets) {
      EXPECT_TRUE(presets.insert(preset.name).second) << preset.name;
      const ModelConfig config(*family, preset.config);
      EXPECT_EQ(model_type(config), family->model_type);
      EXPECT_EQ(config, find_model_config(preset.name).config);
    }
  }
  EXPECT_EQ(find_family("unheard_of"), nullptr);
  EXPECT_EQ(find_family_of_architecture("UnheardOf"), nullptr);
  EXPECT_EQ(find_family_of_architecture("GPT2ForSomething")->model_type, "gpt2");
}

// A row reads what it writes, and every weight of the model has a place in files.
TEST(Families, EveryPreset_HasAPlaceForEachOfItsWeights) {
  for (const Family* family : families()) {
    for (const FamilyPreset& preset : family->presets) {
      SCOPED_TRACE(preset.name);
      const ModelConfig config(*family, preset.config);
      const auto model = make_model(config);
      EXPECT_EQ(model->model_type(), family->model_type);
      EXPECT_EQ(model->vocab_size(), vocabulary_size(config));
      EXPECT_EQ(model->num_parameters(), num_parameters(config));
      std::vector<WeightSpec> ours;
      for (const auto& [name, parameter] : model->named_parameters()) {
        ours.push_back({name, parameter->shape()});
      }
      int64_t stored = 0;
      for (const WeightSpec& tensor : stored_tensors(name_map(config), ours)) {
        stored += tensor.shape.numel();
      }
      EXPECT_EQ(stored, num_parameters(config));
    }
  }
}

// Counts of the models as they were published.
TEST(Families, Presets_HaveThePublishedSizes) {
  const std::vector<std::pair<std::string, int64_t>> published = {
      {"mistral-7b", 7'241'732'096}, {"qwen2-7b", 7'615'616'512},
      {"qwen3-8b", 8'190'735'360},   {"gpt-neox-20b", 20'554'567'680},
      {"bloomz-7b1", 7'069'016'064}, {"chatglm3-6b", 6'243'584'000},
  };
  for (const auto& [name, count] : published) {
    const ModelConfig config = find_model_config(name).config;
    EXPECT_EQ(num_parameters(config), count) << name;
    if (const auto* llama = config.get_if<nn::LlamaConfig>()) {
      EXPECT_EQ(llama->num_parameters(), count) << name;
    }
  }
}

TEST(ModelConfigs, AreValues) {
  ModelConfig gpt2 = nn::Gpt2Config::preset("tiny");
  const ModelConfig copy = gpt2;
  EXPECT_EQ(gpt2, copy);
  EXPECT_EQ(gpt2.as<nn::Gpt2Config>().num_layers, 4);
  EXPECT_EQ(gpt2.get_if<nn::LlamaConfig>(), nullptr);
  set_vocabulary_size(gpt2, 300);
  EXPECT_EQ(vocabulary_size(gpt2), 300);
  EXPECT_EQ(vocabulary_size(copy), 256);
  EXPECT_FALSE(gpt2 == copy);
  EXPECT_FALSE(copy == ModelConfig(nn::LlamaConfig::preset("llama-tiny")));
  EXPECT_EQ(ModelConfig(), ModelConfig());
  EXPECT_FALSE(copy == ModelConfig());
  EXPECT_THAT(files::message_of<InvalidArgument>([&] { (void)copy.as<nn::LlamaConfig>(); }),
              HasSubstr("gpt2"));
  EXPECT_THROW(model_type(ModelConfig()), InvalidArgument);
  EXPECT_THROW(ModelConfig(*find_family("llama"), copy.value()), InvalidArgument);
}

// A family of a program's own: a GPT-2 whose files have other names.
struct OwnConfig {
  int64_t vocab_size = 20, max_positions = 8, hidden_size = 6, num_heads = 2;
  bool tie_word_embeddings = true;
  std::vector<int64_t> eos_tokens{};
  int64_t pad_token = 3;

  static std::string_view model_type() { return "own"; }
  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t mlp_size() const { return 4 * hidden_size; }
  void validate() const {
    if (hidden_size % num_heads != 0) throw ConfigError("own model: heads");
  }
  static std::vector<std::string_view> preset_names() { return {"own-small"}; }
  static OwnConfig preset(std::string_view /*name*/) { return {}; }
  friend bool operator==(const OwnConfig&, const OwnConfig&) = default;
};

class OwnModel : public nn::Gpt2 {
 public:
  explicit OwnModel(const OwnConfig& config)
      : nn::Gpt2({.vocab_size = config.vocab_size,
                  .max_positions = config.max_positions,
                  .hidden_size = config.hidden_size,
                  .num_layers = 2,
                  .num_heads = config.num_heads}) {}
  std::string_view model_type() const override { return "own"; }
};

OwnConfig parse_own(const files::json::Value& root) {
  JsonFields fields(root);
  OwnConfig config;
  config.hidden_size = fields.integer("width", 6);
  return config;
}

Family own_family() {
  return make_family<OwnConfig>(
      {.model_type = "own",
       .architectures = {"OwnModel"},
       .parse = parse_own,
       .write =
           [](const OwnConfig& config, files::json::Object& object) {
             object.set("model_type", "own");
             object.set("width", config.hidden_size);
           },
       .make = make_family_model<OwnModel, OwnConfig>,
       .names = [](const OwnConfig& config) -> NameMap {
         return {.rows = {{"transformer.h.*.attn.c_attn.bias", "blocks.*.qkv",
                           heads_outermost(3, config.num_heads, config.head_dim())}}};
       }});
}

TEST(Families, ProgramAddsItsOwn_Once) {
  add_family(own_family());
  const ModelConfig config =
      parse_model_config(files::json::parse(R"({"model_type": "own", "width": 8})", "config.json"));
  EXPECT_EQ(config.as<OwnConfig>().hidden_size, 8);
  EXPECT_EQ(make_model(config)->model_type(), "own");
  EXPECT_EQ(pad_token(config), 3);
  EXPECT_EQ(bos_token(config), -1);
  EXPECT_FALSE(learns_positions(config));
  EXPECT_EQ(model_type(find_model_config("own-small").config), "own");
  EXPECT_THAT(model_config_json(config, DType::f32), HasSubstr("\"width\": 8"));
  EXPECT_THROW(parse_model_config(files::json::parse(R"({"model_type": "own", "width": 7})", "c")),
               ConfigError);
  EXPECT_THAT(known_families("onw"), HasSubstr("did you mean \"own\"? zinc has gpt2"));

  // The model's weights go through a folder and come back, under the names of its map.
  const files::ScratchFolder folder;
  folder.write("config.json", model_config_json(config, DType::f32));
  const NameMap of_folder = name_map_of_folder(folder.path());
  ASSERT_EQ(of_folder.rows.size(), 1U);
  EXPECT_EQ(of_folder.rows[0].theirs, "blocks.*.qkv");

  EXPECT_THAT(files::message_of<InvalidArgument>([] { add_family(own_family()); }),
              HasSubstr("there is a family \"own\" already"));
  Family renamed = own_family();
  renamed.model_type = "own2";
  EXPECT_THAT(files::message_of<InvalidArgument>([&] { add_family(renamed); }),
              HasSubstr("own has a preset \"own-small\" already"));
  renamed.presets.clear();
  renamed.make = nullptr;
  EXPECT_THAT(files::message_of<InvalidArgument>([&] { add_family(renamed); }),
              HasSubstr("lacks a function"));
}

TEST(NameMapOfFolder, WithoutAKnownFamily_NamesStay) {
  const files::ScratchFolder folder;
  EXPECT_THAT(name_map_of_folder(folder.path()).prefixes, IsEmpty());
  folder.write("config.json", R"({"model_type": "unheard_of"})");
  EXPECT_THAT(name_map_of_folder(folder.path()).prefixes, IsEmpty());
  folder.write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_THAT(name_map_of_folder(folder.path()).prefixes, testing::ElementsAre("transformer."));
}

}  // namespace family_test
}  // namespace zinc::hub
