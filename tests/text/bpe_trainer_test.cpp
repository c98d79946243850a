#include "text/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "files/json/parser.h"
#include "tests/files/scratch_folder.h"
#include "text/pattern.h"
#include "text/tokenizer_folder.h"

namespace zinc::text {
namespace bpe_trainer_test {

using ::testing::HasSubstr;

const files::json::Value& reference() {
  static const files::json::Value value =
      files::json::parse_file("tests/reference/tokenizers/expected.json");
  return value;
}

BpeTrainer trained(BpeTrainer::Options options) {
  BpeTrainer trainer(std::move(options));
  for (const files::json::Value& text : reference().at("texts").as_array()) {
    trainer.add_text(text.as_string());
  }
  trainer.train();
  return trainer;
}

TEST(BpeTrainer, LearnsTheMergesOfTheReference) {
  const BpeTrainer trainer = trained({.vocabulary_size = 330, .specials = {"<|endoftext|>"}});
  const files::json::Value model =
      files::json::parse(trainer.tokenizer_json(), "tokenizer.json").at("model");
  EXPECT_TRUE(model.at("merges") == reference().at("trained").at("merges"));
  for (const files::json::Member& token : reference().at("trained").at("vocab").as_object()) {
    EXPECT_EQ(model.at("vocab").at(token.key).as_int64(), token.value.as_int64()) << token.key;
  }
  EXPECT_EQ(trainer.num_tokens(), 330);
}

TEST(BpeTrainer, ItsFiles_AreTokenizersThatAgree) {
  for (const std::string_view pattern : {kGpt2Pattern, kQwen2Pattern}) {
    const BpeTrainer trainer = trained({.vocabulary_size = 300,
                                        .specials = {"<|endoftext|>", "<|pad|>"},
                                        .pattern = std::string(pattern)});
    files::ScratchFolder folder;
    folder.write("tokenizer_config.json", trainer.tokenizer_config_json());
    const std::string whole = folder.write("tokenizer.json", trainer.tokenizer_json());
    folder.write("vocab.json", trainer.vocab_json());
    folder.write("merges.txt", trainer.merges_txt());
    const auto from_json = load_tokenizer(whole);
    EXPECT_EQ(from_json->end_of_text(), 0);
    EXPECT_EQ(from_json->vocabulary_size(), 300);
    EXPECT_EQ(from_json->encode("<|pad|>"), std::vector<int32_t>{1});
    const auto from_parts = load_tokenizer(folder / "vocab.json");
    for (const files::json::Value& text : reference().at("texts").as_array()) {
      const std::vector<int32_t> ids = from_json->encode(text.as_string());
      EXPECT_EQ(from_json->decode(ids), text.as_string());
      if (pattern == kGpt2Pattern && text.as_string().find("<|pad|>") == std::string::npos) {
        EXPECT_EQ(from_parts->encode(text.as_string()), ids);
      }
    }
  }
}

TEST(BpeTrainer, RarePairs_EndTheTraining) {
  const BpeTrainer all = trained({.vocabulary_size = 100'000});
  const BpeTrainer frequent = trained({.vocabulary_size = 100'000, .min_frequency = 5});
  EXPECT_LT(frequent.num_tokens(), all.num_tokens());
  EXPECT_GT(frequent.num_tokens(), 256);
}

TEST(BpeTrainer, VocabularyWithoutRoom_IsRefused) {
  EXPECT_THAT(files::message_of<ConfigError>(
                  [] { BpeTrainer({.vocabulary_size = 256, .specials = {"<s>"}}); }),
              HasSubstr("too small: 257 are special tokens and bytes"));
}

}  // namespace bpe_trainer_test
}  // namespace zinc::text
