// Tokenizers against what Hugging Face's library makes of the same texts: the files of
// tests/reference/tokenizers/, which tests/reference/make_tokenizers.py wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "files/utf8.h"
#include "tests/files/scratch_folder.h"
#include "text/json_tokenizer.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/pre_tokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer_folder.h"

namespace zinc::text {
namespace tokenizer_test {

using ::testing::HasSubstr;

const std::string kFolder = "tests/reference/tokenizers/";

const files::json::Value& expected() {
  static const files::json::Value value = files::json::parse_file(kFolder + "expected.json");
  return value;
}

std::vector<int32_t> ids_of(const files::json::Value& list) {
  std::vector<int32_t> ids;
  for (const files::json::Value& id : list.as_array())
    ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

// Null, and the test is skipped, where this build lacks the library that the tokenizer needs.
std::unique_ptr<Tokenizer> load_or_skip(const std::string& path) {
  try {
    return load_tokenizer(path);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("install lib"));
    return nullptr;
  }
}

class TokenizerKind : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tokenizer_ = load_or_skip(kFolder + GetParam() + ".json");
    if (tokenizer_ == nullptr) GTEST_SKIP() << "this build lacks a library";
  }
  // Calls check(text, i) for all texts.
  template <class Check>
  void for_each_text(Check check) {
    const files::json::Array& texts = expected().at("texts").as_array();
    for (size_t i = 0; i < texts.size(); ++i) {
      SCOPED_TRACE(testing::PrintToString(texts[i].as_string()));
      check(texts[i].as_string(), i);
    }
  }
  const files::json::Value& list(std::string_view name, size_t i) {
    return expected().at(GetParam()).at(name).at(i);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerKind, Encode_GivesTheReferenceIds) {
  for_each_text([&](const std::string& text, size_t i) {
    EXPECT_EQ(tokenizer_->encode(text), ids_of(list("ids", i)));
    EXPECT_EQ(tokenizer_->encode_with_specials(text), ids_of(list("with_specials", i)));
  });
}

TEST_P(TokenizerKind, Decode_GivesTheReferenceText) {
  for_each_text([&](const std::string&, size_t i) {
    EXPECT_EQ(tokenizer_->decode(ids_of(list("ids", i))), list("decoded", i).as_string());
  });
}

TEST_P(TokenizerKind, StreamingDecoder_ShowsTheSameTextAndNeverHalfACharacter) {
  for_each_text([&](const std::string&, size_t i) {
    StreamingDecoder decoder(*tokenizer_);
    std::string shown;
    for (const int32_t id : ids_of(list("ids", i))) {
      const std::string piece = decoder.push(id);
      EXPECT_EQ(files::first_invalid_utf8(std::string_view(piece)), std::nullopt);
      shown += piece;
    }
    EXPECT_EQ(shown + decoder.finish(), list("decoded", i).as_string());
  });
}

TEST_P(TokenizerKind, ManyThreads_GetTheSameIds) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for_each_text([&](const std::string& text, size_t i) {
        EXPECT_EQ(tokenizer_->encode(text), ids_of(list("ids", i)));
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerKind,
                         ::testing::Values("gpt2", "roberta", "llama3", "qwen2", "bloom", "o200k",
                                           "bert", "t5", "llama2", "mixed"),
                         [](const auto& info) { return std::string(info.param); });

// Text that is no UTF-8 is what Python's decode(errors="replace") makes of it.
TEST(JsonTokenizer, InvalidUtf8_CountsAsReplacementCharacters) {
  const auto tokenizer = load_tokenizer(kFolder + "gpt2.json");
  EXPECT_EQ(tokenizer->encode("a\xFFz"), tokenizer->encode("a\xEF\xBF\xBDz"));
}

TEST(JsonTokenizer, LongPiece_IsMergedAsShortOnesAre) {
  const auto tokenizer = load_tokenizer(kFolder + "gpt2.json");
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "the";
  const std::vector<int32_t> ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_LT(ids.size(), text.size() / 2);
}

// --- parts of a tokenizer.json, each on what the part before it left

TEST(JsonTokenizer, JoinedParts_GiveTheReferenceIds) {
  const files::json::Value reference = files::json::parse_file(kFolder + "joined.json");
  const files::json::Array& texts = reference.at("texts").as_array();
  for (const files::json::Value& row : reference.at("rows").as_array()) {
    files::json::Object root;
    root.set("model", reference.at("model"));
    for (const char* part : {"added_tokens", "normalizer", "pre_tokenizer"}) {
      root.set(part, row.at(part));
    }
    SCOPED_TRACE(files::json::write(row).substr(0, 400));
    std::unique_ptr<JsonTokenizer> tokenizer;
    try {
      tokenizer = JsonTokenizer::parse(files::json::Value(std::move(root)), "joined");
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("install lib"));
      continue;
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const files::json::Value& wanted = row.at("ids").at(i);
      if (wanted.is_null()) continue;
      std::vector<int32_t> ids;
      for (const files::json::Value& id : wanted.as_array()) {
        ids.push_back(static_cast<int32_t>(id.as_int64(0, 1000)));
      }
      EXPECT_EQ(tokenizer->encode(texts[i].as_string()), ids)
          << testing::PrintToString(texts[i].as_string());
    }
  }
}

// --- other files of a folder

files::json::Value model_of(const std::string& name) {
  return files::json::parse_file(kFolder + name + ".json").at("model");
}

TEST(LoadTokenizer, VocabJsonAndMerges_GiveTheIdsOfTokenizerJson) {
  const files::json::Value model = model_of("gpt2");
  files::ScratchFolder folder;
  std::string vocab = "{", merges = "#version: 0.2\n";
  for (const files::json::Member& token : model.at("vocab").as_object()) {
    files::json::Value key(token.key);
    vocab += str(vocab.size() > 1 ? "," : "", files::json::write(key), ":", token.value.as_int64());
  }
  for (const files::json::Value& merge : model.at("merges").as_array()) {
    merges += merge.at(size_t{0}).as_string() + " " + merge.at(size_t{1}).as_string() + "\n";
  }
  folder.write("vocab.json", vocab + "}");
  folder.write("merges.txt", merges);
  folder.write("added_tokens.json", R"({"<extra>": 500})");
  const auto tokenizer = load_tokenizer(folder.path());
  const files::json::Array& texts = expected().at("texts").as_array();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->encode(texts[i].as_string()),
              ids_of(expected().at("gpt2").at("ids").at(i)));
  }
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  EXPECT_EQ(tokenizer->encode("<extra>"), std::vector<int32_t>{500});
  EXPECT_EQ(tokenizer->vocabulary_size(), 501);
}

TEST(LoadTokenizer, VocabTxt_GivesTheIdsOfTokenizerJson) {
  const files::json::Value model = model_of("bert");
  std::vector<std::string> tokens(model.at("vocab").size());
  for (const files::json::Member& token : model.at("vocab").as_object()) {
    tokens[static_cast<size_t>(token.value.as_int64())] = token.key;
  }
  files::ScratchFolder folder;
  std::string text;
  for (const std::string& token : tokens) text += token + "\n";
  folder.write("vocab.txt", text);
  const auto tokenizer = load_or_skip(folder.path());
  if (tokenizer == nullptr) GTEST_SKIP() << "this build lacks a library";
  const files::json::Array& texts = expected().at("texts").as_array();
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->encode_with_specials(texts[i].as_string()),
              ids_of(expected().at("bert").at("with_specials").at(i)));
  }
}

TEST(LoadTokenizer, SettingsNameTheEndOfText) {
  files::ScratchFolder folder;
  folder.write("tokenizer.json", files::read_whole_file(kFolder + "roberta.json"));
  EXPECT_EQ(load_tokenizer(folder.path())->end_of_text(), 2);  // </s>, as families name it
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<pad>"}})");
  EXPECT_EQ(load_tokenizer(folder.path())->end_of_text(), 1);
}

TEST(LoadTokenizer, FolderWithoutTokenizer_SaysWhatItLooksFor) {
  const files::ScratchFolder folder;
  EXPECT_THAT(files::message_of<DataError>([&] { load_tokenizer(folder.path()); }),
              HasSubstr("holds no tokenizer: none of tokenizer.json"));
}

// --- sentencepiece

TEST(SentencePiece, Model_GivesTheReferenceIdsAndText) {
  const auto tokenizer = load_or_skip(kFolder + "spiece.model");
  if (tokenizer == nullptr) GTEST_SKIP() << "this build lacks a library";
  const files::json::Array& texts = expected().at("texts").as_array();
  const files::json::Value& reference = expected().at("spiece");
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(testing::PrintToString(texts[i].as_string()));
    const std::vector<int32_t> ids = ids_of(reference.at("ids").at(i));
    EXPECT_EQ(tokenizer->encode(texts[i].as_string()), ids);
    EXPECT_EQ(tokenizer->decode(ids), reference.at("decoded").at(i).as_string());
  }
}

TEST(SentencePiece, SettingsPutTokensOnTop) {
  files::ScratchFolder folder;
  folder.write("tokenizer.model", files::read_whole_file(kFolder + "spiece.model"));
  const auto load = [&](const std::string& settings) {
    folder.write("tokenizer_config.json", settings);
    return load_or_skip(folder.path());
  };
  const auto plain = load("{}");
  if (plain == nullptr) GTEST_SKIP() << "this build lacks a library";
  const auto size = static_cast<int32_t>(plain->vocabulary_size());
  const std::vector<int32_t> text = plain->encode("the heaven");
  const auto around = [&](std::vector<int32_t> ids, const std::vector<int32_t>& behind) {
    ids.insert(ids.end(), text.begin(), text.end());
    ids.insert(ids.end(), behind.begin(), behind.end());
    return ids;
  };
  EXPECT_EQ(plain->encode_with_specials("the heaven"), around({1}, {}));
  EXPECT_EQ(plain->end_of_text(), 2);
  const auto chat = load(R"({"tokenizer_class": "ChatGLMTokenizer"})");
  EXPECT_EQ(chat->encode_with_specials("the heaven"), around({size + 1, size + 3}, {}));
  EXPECT_EQ(chat->encode("<|user|>the heaven"), around({size + 6}, {}));
  EXPECT_EQ(chat->vocabulary_size(), size + 9);
  const auto t5 = load(R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 3})");
  EXPECT_EQ(t5->encode_with_specials("<extra_id_0>the heaven"), around({size + 2}, {2}));
  EXPECT_EQ(t5->decode(t5->encode("the heaven<extra_id_2>")), "the heaven<extra_id_2>");
  const auto listed = load(R"({"added_tokens_decoder": {"900": {"content": "<pad>"}}})");
  EXPECT_EQ(listed->encode("<pad>"), std::vector<int32_t>{900});
  EXPECT_EQ(listed->vocabulary_size(), 901);
}

TEST(SentencePiece, FileThatIsNoModel_IsRefused) {
  files::ScratchFolder folder;
  folder.write("tokenizer.model", "not a model");
  if (load_or_skip(kFolder + "spiece.model") == nullptr) GTEST_SKIP();
  EXPECT_THAT(files::message_of<DataError>([&] { load_tokenizer(folder.path()); }),
              HasSubstr("tokenizer.model: is no sentencepiece model"));
}

// The text that a generating model shows, token by token.
TEST(SentencePiece, StreamingDecoder_ShowsTheReferenceText) {
  const auto tokenizer = load_or_skip(kFolder + "spiece.model");
  if (tokenizer == nullptr) GTEST_SKIP() << "this build lacks a library";
  const files::json::Value& reference = expected().at("spiece");
  for (size_t i = 0; i < reference.at("ids").as_array().size(); ++i) {
    const std::vector<int32_t> ids = ids_of(reference.at("ids").at(i));
    SCOPED_TRACE(testing::PrintToString(ids));
    StreamingDecoder stream(*tokenizer);
    std::string shown;
    for (const int32_t id : ids) shown += stream.push(id);
    shown += stream.finish();
    EXPECT_EQ(shown, reference.at("decoded").at(i).as_string());
  }
}

TEST(SentencePiece, StopStringsHoldSpacesAndCharactersOfSeveralTokens) {
  const auto tokenizer = load_or_skip(kFolder + "spiece.model");
  if (tokenizer == nullptr) GTEST_SKIP() << "this build lacks a library";
  const StopStrings stops(*tokenizer, {"the heaven", "\u20ac"});
  const std::vector<int32_t> spaced = tokenizer->encode("and the heaven");
  EXPECT_TRUE(stops.end(spaced));
  EXPECT_FALSE(stops.end(std::span(spaced).first(spaced.size() - 1)));
  const std::vector<int32_t> bytes = tokenizer->encode("a \u20ac");  // tokens of one byte each
  ASSERT_GE(bytes.size(), 4u);
  EXPECT_TRUE(stops.end(bytes));
  EXPECT_FALSE(stops.end(std::span(bytes).first(bytes.size() - 1)));
}

// --- parts of a tokenizer.json, one by one, with each of their options

class ParsedParts : public ::testing::Test {
 protected:
  // Calls check(part, row, i) for each row of a list, and each text.
  template <class Parse, class Check>
  static void for_each_part(std::string_view list, Parse parse, Check check) {
    const files::json::Value reference = files::json::parse_file(kFolder + "parts.json");
    const files::json::Array& texts = reference.at("texts").as_array();
    for (const files::json::Value& row : reference.at(list).as_array()) {
      const files::json::Value& settings = row.at("part");
      SCOPED_TRACE(files::json::write(settings).substr(0, 200));
      const auto part = parse(&settings);
      if (!part) GTEST_SKIP() << "this build lacks a library";
      for (size_t i = 0; i < texts.size(); ++i) {
        SCOPED_TRACE(testing::PrintToString(texts[i].as_string()));
        check(*part, texts[i].as_string(), row, i);
      }
    }
  }
  template <class Part>
  static std::optional<Part> parse_or_skip(const files::json::Value* settings) {
    try {
      return Part::parse(settings);
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("install lib"));
      return std::nullopt;
    }
  }
};

TEST_F(ParsedParts, Normalizers_GiveTheReferenceTexts) {
  for_each_part("normalizers", &parse_or_skip<Normalizer>,
                [](const Normalizer& part, const std::string& text, const files::json::Value& row,
                   size_t i) { EXPECT_EQ(part.apply(text), row.at("texts").at(i).as_string()); });
}

TEST_F(ParsedParts, PreTokenizers_GiveTheReferencePieces) {
  for_each_part("pre_tokenizers", &parse_or_skip<PreTokenizer>,
                [](const PreTokenizer& part, const std::string& text, const files::json::Value& row,
                   size_t i) {
                  std::vector<std::string> pieces, wanted;
                  part.run({.text = text, .of_first = 1},
                           [&](PreToken piece) { pieces.emplace_back(piece.text); });
                  for (const files::json::Value& piece : row.at("pieces").at(i).as_array()) {
                    wanted.push_back(piece.as_string());
                  }
                  EXPECT_EQ(pieces, wanted);
                });
}

// --- what is refused, by name

struct Refusal {
  const char* name;
  const char* part;     // of the root
  const char* message;  // a part of it
};

class RefusedPart : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedPart, IsNamed) {
  const std::string model = R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []})";
  const std::string part = GetParam().part;
  const std::string text =
      part.find("\"model\"") != part.npos ? "{" + part + "}" : "{" + model + ", " + part + "}";
  EXPECT_THAT(files::message_of<DataError>(
                  [&] { JsonTokenizer::parse(files::json::parse(text, "t.json"), "t.json"); }),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedPart,
    ::testing::Values(
        Refusal{"top_level_key", R"("chat": 1)", "'chat' is not supported here"},
        Refusal{"version", R"("version": "2.0")", "only version \"1.0\" is known"},
        Refusal{"normalizer", R"("normalizer": {"type": "Fancy"})",
                "normalizer.type: the normalizer 'Fancy' is not supported; zinc has"},
        Refusal{"option", R"("normalizer": {"type": "Lowercase", "locale": "tr"})",
                "'locale' is not supported here"},
        Refusal{
            "inner_step",
            R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})",
            "the pre-tokenizer 'UnicodeScripts' is not supported"},
        Refusal{
            "behavior",
            R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Kept"})",
            "the split behavior 'Kept' is not supported"},
        Refusal{
            "empty_pattern",
            R"("pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed"})",
            "a pattern must not be empty"},
        Refusal{"post_processor", R"("post_processor": {"type": "Other"})",
                "the post-processor 'Other' is not supported"},
        Refusal{
            "template_token",
            R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}], "special_tokens": {}})",
            "is not among the special_tokens"},
        Refusal{"decoder", R"("decoder": {"type": "CTC"})", "the decoder 'CTC' is not supported"},
        Refusal{"model", R"("model": {"type": "WordLevel", "vocab": {}})",
                "the model 'WordLevel' is not supported"},
        Refusal{"dropout", R"("model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []})",
                "dropout is not supported: set it to null"},
        Refusal{"merge_outside",
                R"("model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]})",
                "merge 0: 'b' is not in the vocabulary"},
        Refusal{"merge_of_three",
                R"("model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]})",
                "a merge is two parts"},
        Refusal{"id_twice", R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})",
                "token id 0 is used twice"},
        Refusal{"id_huge", R"("model": {"type": "BPE", "vocab": {"a": 2000000000}, "merges": []})",
                "2000000000"},
        Refusal{"added_id", R"("added_tokens": [{"id": 0, "content": "x"}])",
                "is the id of 'a' in the model"},
        Refusal{"added_twice",
                R"("added_tokens": [{"id": 7, "content": "x"}, {"id": 7, "content": "y"}])",
                "id 7 is used twice"},
        Refusal{"unknown_id",
                R"("model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", -1.0]]})",
                "unk_id 5 is not in the vocabulary"},
        Refusal{"wordpiece_unknown",
                R"("model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"a": 0}})",
                "the unknown token '[UNK]' is not in the vocabulary"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace tokenizer_test
}  // namespace zinc::text
