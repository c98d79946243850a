#include "hub/weight_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/safetensors/folder.h"
#include "hub/model_folder.h"
#include "nn/models/bert_config.h"
#include "nn/models/bloom_config.h"
#include "nn/models/chatglm_config.h"
#include "nn/models/gpt_neox_config.h"
#include "nn/models/llama_config.h"
#include "nn/models/t5_config.h"
#include "tests/files/scratch_folder.h"

namespace zinc::hub {
namespace weight_reader_test {

using testing::ElementsAre;
using testing::IsEmpty;

// GPT-2's map, and Llama's buffers.
NameMap names() {
  NameMap map = name_map(nn::Gpt2Config{});
  map.buffers.emplace_back("*rotary_emb.inv_freq");
  return map;
}

// A folder whose tensors hold 0, 1, 2, ..., times a factor for each.
WeightReader reader_of(const files::ScratchFolder& folder,
                       const std::vector<files::TensorSpec>& tensors,
                       const std::vector<float>& factors = {}, const NameMap& map = names()) {
  files::SafetensorsFolderWriter writer(folder.path(), tensors);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const int64_t count = tensors[t].shape.numel();
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i) * (factors.empty() ? 1.0f : factors[t]);
    }
    writer.write(tensors[t].name, 0, ConstView(values.data(), DType::f32, Shape{count}));
  }
  writer.commit();
  return WeightReader(WeightFolder::open(folder.path()), map);
}

std::vector<float> read(const WeightReader& reader, std::string_view name, const Shape& shape,
                        int64_t begin, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  reader.read(name, shape, begin, View(out.data(), DType::f32, Shape{count}));
  return out;
}

TEST(WeightReader, BasePrefix_MayStandOnEitherSide) {
  const files::ScratchFolder with, without;
  const WeightReader prefixed =
      reader_of(with, {{"transformer.wte.weight", DType::f32, Shape{3, 2}}});
  const WeightReader bare = reader_of(without, {{"wte.weight", DType::f32, Shape{3, 2}}});
  for (const WeightReader* reader : {&prefixed, &bare}) {
    for (const char* name : {"transformer.wte.weight", "wte.weight"}) {
      const std::vector<WeightSpec> specs = {{name, Shape{3, 2}}};
      EXPECT_TRUE(reader->match(specs).complete()) << name;
      EXPECT_THAT(read(*reader, name, Shape{3, 2}, 2, 3), ElementsAre(2.0f, 3.0f, 4.0f));
    }
  }
  EXPECT_FALSE(bare.shape_of("encoder.wte.weight", Shape{3, 2}).has_value());
}

TEST(WeightReader, ShardOfAParameter_IsConverted) {
  const files::ScratchFolder folder;
  const WeightReader reader = reader_of(folder, {{"w", DType::bf16, Shape{100}}});
  EXPECT_THAT(read(reader, "w", Shape{100}, 90, 3), ElementsAre(90.0f, 91.0f, 92.0f));
}

TEST(WeightReader, Match_SaysWhatDoesNotFit) {
  const files::ScratchFolder folder;
  const WeightReader reader = reader_of(folder, {{"wte.weight", DType::f32, Shape{3, 2}},
                                                 {"h.0.attn.bias", DType::f32, Shape{1, 1, 4, 4}},
                                                 {"h.0.attn.masked_bias", DType::f32, Shape{}},
                                                 {"h.0.rotary_emb.inv_freq", DType::f32, Shape{4}},
                                                 {"lm_head.weight", DType::f32, Shape{3, 2}},
                                                 {"h.0.attn.c_attn.bias", DType::f32, Shape{6}},
                                                 {"extra", DType::f32, Shape{1}}});
  const std::vector<WeightSpec> specs = {{"transformer.wte.weight", Shape{2, 3}},
                                         {"transformer.wpe.weight", Shape{4, 2}},
                                         {"transformer.h.0.attn.c_attn.bias", Shape{6}}};
  const WeightMatch match = reader.match(specs);
  EXPECT_THAT(match.missing, ElementsAre("transformer.wpe.weight"));
  EXPECT_THAT(match.unexpected, ElementsAre("extra"));
  EXPECT_THAT(match.mismatched,
              ElementsAre("transformer.wte.weight: [3, 2] in the file, [2, 3] in the model"));
  EXPECT_EQ(files::message_of<DataError>([&] { reader.require_match(specs); }),
            folder.path() +
                ": the weights do not fit the model\n"
                "  missing in the files (1):\n"
                "    transformer.wpe.weight\n"
                "  unknown to the model (1):\n"
                "    extra\n"
                "  of another shape (1):\n"
                "    transformer.wte.weight: [3, 2] in the file, [2, 3] in the model");
  EXPECT_EQ(files::message_of<DataError>([&] {
              read(reader, "transformer.wte.weight", Shape{2, 3}, 0, 1);
            }),
            (folder / "model.safetensors") +
                ": wte.weight has shape [3, 2], the model's transformer.wte.weight needs [2, 3]");
  EXPECT_EQ(files::message_of<DataError>([&] { read(reader, "absent", Shape{1}, 0, 1); }),
            folder.path() + ": there is no tensor for absent");
}

TEST(WeightReader, LongLists_AreCut) {
  const files::ScratchFolder folder;
  const WeightReader reader = reader_of(folder, {{"w", DType::f32, Shape{1}}});
  std::vector<WeightSpec> specs = {{"w", Shape{1}}};
  for (int i = 0; i < 13; ++i) specs.push_back({str("p", i), Shape{1}});
  EXPECT_THAT(files::message_of<DataError>([&] { reader.require_match(specs); }),
              testing::EndsWith("    p9\n    and 3 more"));
}

// An untied model needs its head; a tied one leaves it aside.
TEST(WeightReader, Head_BelongsToUntiedModelsOnly) {
  const files::ScratchFolder folder;
  const WeightReader reader = reader_of(folder, {{"wte.weight", DType::f32, Shape{3, 2}},
                                                 {"lm_head.weight", DType::f32, Shape{3, 2}}});
  const std::vector<WeightSpec> tied = {{"wte.weight", Shape{3, 2}}};
  const std::vector<WeightSpec> untied = {{"wte.weight", Shape{3, 2}},
                                          {"lm_head.weight", Shape{3, 2}}};
  EXPECT_TRUE(reader.match(tied).complete());
  EXPECT_TRUE(reader.match(untied).complete());
  const files::ScratchFolder without;
  EXPECT_THAT(reader_of(without, {{"wte.weight", DType::f32, Shape{3, 2}}}).match(untied).missing,
              ElementsAre("lm_head.weight"));
}

// The files of safetensors.torch.save_model: of tied tensors only the first name.
TEST(WeightReader, TiedTable_MayStandUnderTheHeadsName) {
  nn::LlamaConfig llama;
  llama.tie_word_embeddings = true;
  nn::GptNeoxConfig neox;
  neox.tie_word_embeddings = true;
  nn::ChatGlmConfig glm;
  glm.tie_word_embeddings = true;
  struct Case {
    NameMap map;
    const char* table;
    const char* stored;
  };
  const std::vector<Case> cases = {
      {names(), "transformer.wte.weight", "lm_head.weight"},
      {name_map(llama), "model.embed_tokens.weight", "lm_head.weight"},
      {name_map(neox), "gpt_neox.embed_in.weight", "embed_out.weight"},
      {name_map(nn::BloomConfig{}), "transformer.word_embeddings.weight", "lm_head.weight"},
      {name_map(glm), "transformer.embedding.word_embeddings.weight",
       "transformer.output_layer.weight"},
      {name_map(nn::T5Config{}), "shared.weight", "decoder.embed_tokens.weight"},
      {name_map(nn::BertConfig{.kind = nn::BertKind::roberta, .task = nn::EncoderTask::masked_lm}),
       "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"},
  };
  for (const Case& one : cases) {
    const files::ScratchFolder folder;
    const WeightReader reader =
        reader_of(folder, {{one.stored, DType::f32, Shape{3, 2}}}, {2.0f}, one.map);
    const std::vector<WeightSpec> specs = {{one.table, Shape{3, 2}}};
    EXPECT_TRUE(reader.match(specs).complete()) << one.table;
    EXPECT_EQ(reader.shape_of(one.table, Shape{3, 2}), (Shape{3, 2})) << one.table;
    reader.require_tied();
    EXPECT_THAT(read(reader, one.table, Shape{3, 2}, 2, 3), ElementsAre(4.0f, 6.0f, 8.0f))
        << one.table;
  }
}

TEST(WeightReader, TiedHeadWithOtherValues_IsRefused) {
  constexpr int64_t kRows = 300'000;  // more than one chunk
  const std::vector<files::TensorSpec> both = {{"wte.weight", DType::f32, Shape{kRows, 1}},
                                               {"lm_head.weight", DType::f32, Shape{kRows, 1}}};
  const files::ScratchFolder same, other, alone;
  reader_of(same, both).require_tied();
  reader_of(alone, {both[0]}).require_tied();
  EXPECT_EQ(files::message_of<DataError>([&] {
              reader_of(other, both, {1.0f, 1.5f}).require_tied();
            }),
            other.path() +
                ": lm_head.weight and transformer.wte.weight differ, but tie_word_embeddings makes "
                "them one; set it to false in config.json");
  // The tensors differ behind the first chunk.
  files::SafetensorsFolderWriter writer(other.path(), both);
  std::vector<float> values(kRows, 1.0f);
  const ConstView view(values.data(), DType::f32, Shape{kRows});
  writer.write("wte.weight", 0, view);
  values.back() = 2.0f;
  writer.write("lm_head.weight", 0, view);
  writer.commit();
  const WeightReader late(WeightFolder::open(other.path()), names());
  EXPECT_THROW(late.require_tied(), DataError);
}

TEST(ModelFolderWriter, WritesWhatAReaderNeeds) {
  const files::ScratchFolder folder;
  folder.write("source/tokenizer.json", "{\"a\": 1}");
  folder.write("source/other.txt", "x");
  const nn::LlamaConfig config = nn::LlamaConfig::preset("llama-tiny");
  const std::vector<files::TensorSpec> specs = {{"a", DType::bf16, Shape{8}},
                                                {"b", DType::bf16, Shape{8}}};
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7};
  const ConstView view(values.data(), DType::f32, Shape{8});
  {
    ModelFolderWriter writer(folder / "final", model_config_json(config, DType::bf16), specs,
                             {.max_shard_bytes = 16, .tokenizer_folder = folder / "source"});
    writer.write("a", 0, view);
    EXPECT_FALSE(std::filesystem::exists(folder / "final"));
    writer.write("b", 0, view);
    writer.commit();
  }
  EXPECT_THAT(files::names_in(folder / "final"),
              ElementsAre("config.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                          "tokenizer.json"));
  EXPECT_EQ(read_model_config(folder / "final").config.as<nn::LlamaConfig>().hidden_size,
            config.hidden_size);
  EXPECT_EQ(files::read_whole_file(folder / "final/tokenizer.json"), "{\"a\": 1}");

  const auto write_again = [&](bool replace) {
    ModelFolderWriter writer(folder / "final", model_config_json(config, DType::bf16), specs,
                             {.replace = replace});
    writer.write("a", 0, view);
    writer.write("b", 0, view);
    writer.commit();
  };
  EXPECT_THROW(write_again(false), IoError);
  write_again(true);
  EXPECT_THAT(files::names_in(folder / "final"), ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(folder.names(), ElementsAre("final", "source"));
}

TEST(ModelFolderWriter, WithoutCommit_LeavesNothing) {
  const files::ScratchFolder folder;
  const std::vector<files::TensorSpec> specs = {{"a", DType::f32, Shape{2}}};
  {
    ModelFolderWriter writer(folder / "final",
                             model_config_json(nn::Gpt2Config::preset("tiny"), DType::f32), specs);
    EXPECT_THROW(writer.commit(), InvalidArgument);  // "a" was not written
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

}  // namespace weight_reader_test
}  // namespace zinc::hub
