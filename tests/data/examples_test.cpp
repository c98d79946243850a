// Records as examples: fields, chat formats, masks. The expected results of formats and masks come
// from tests/reference/examples.json, which tests/reference/make_examples.py wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/examples/make_examples.h"
#include "files/json/parser.h"
#include "tests/files/scratch_folder.h"
#include "text/tokenizer_folder.h"

namespace zinc::data {
namespace examples_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const files::json::Value& reference() {
  static const files::json::Value value = files::json::parse_file("tests/reference/examples.json");
  return value;
}

Record record_of(const std::string& object) {
  return {.fields = files::json::parse(object, "r.jsonl"), .place = "r.jsonl:7"};
}

std::string joined(const std::vector<TextSpan>& spans) {
  std::string text;
  for (const TextSpan& span : spans) text += span.text;
  return text;
}

TEST(FieldMap, ShapesAreFoundByLooking) {
  const auto found = [](const std::string& object) {
    const std::vector<Record> records{record_of(object)};
    return find_fields(records).describe();
  };
  EXPECT_EQ(found(R"({"messages": [], "id": 1})"), "messages=messages");
  EXPECT_EQ(found(R"({"conversations": []})"), "messages=conversations");
  EXPECT_EQ(found(R"({"input_ids": [], "labels": []})"), "input_ids=input_ids, labels=labels");
  EXPECT_EQ(found(R"({"instruction": "", "input": "", "output": ""})"),
            "prompt=instruction, input=input, answer=output");
  EXPECT_EQ(found(R"({"instruction": "", "output": "", "system": ""})"),
            "system=system, prompt=instruction, answer=output");
  EXPECT_EQ(found(R"({"id": 0, "input": "", "target": ""})"), "prompt=input, answer=target");
  EXPECT_EQ(found(R"({"prompt": "", "completion": ""})"), "prompt=prompt, answer=completion");
  EXPECT_EQ(found(R"({"id": "", "dialogue": "", "summary": ""})"),
            "prompt=dialogue, answer=summary");
  EXPECT_EQ(found(R"({"summary": "", "content": ""})"), "prompt=content, answer=summary");
  EXPECT_EQ(found(R"({"text": "", "label": 1})"), "prompt=text, answer=label");
  EXPECT_EQ(found(R"({"text": "", "title": 1})"), "text=text");
}

TEST(FieldMap, AllRecordsMustHaveTheFields) {
  const std::vector<Record> records{record_of(R"({"text": "", "label": 1})"),
                                    record_of(R"({"text": ""})")};
  EXPECT_EQ(find_fields(records).describe(), "text=text");
}

TEST(FieldMap, UnknownFields_AreNamed) {
  const std::vector<Record> records{record_of(R"({"frage": "", "antwort": ""})")};
  EXPECT_THAT(files::message_of<DataError>([&] { find_fields(records); }),
              HasSubstr("r.jsonl:7: the fields \"frage\", \"antwort\" are none"));
}

TEST(FieldMap, RecordsOfTwoKinds_NameTheOneThatDiffers) {
  std::vector<Record> records{record_of(R"({"question": "", "answer": ""})"),
                              record_of(R"({"prompt": "", "completion": ""})")};
  records[1].place = "r.jsonl:8";
  EXPECT_THAT(files::message_of<DataError>([&] { find_fields(records); }),
              HasSubstr("r.jsonl:8: the fields \"prompt\", \"completion\" are of another kind of "
                        "record than those before it, which have \"question\", \"answer\""));
}

// Fields that none of the first records has are known all the same.
TEST(FieldMap, OptionalFields_CountInLaterRecordsToo) {
  const std::vector<Record> records{record_of(R"({"instruction": "q", "output": "a"})")};
  const FieldMap fields = find_fields(records);
  EXPECT_EQ(fields.describe(), "prompt=instruction, answer=output");
  const text::ByteTokenizer bytes;
  const ExampleMaker maker(&bytes, {.fields = fields, .max_tokens = 99});
  EXPECT_EQ(joined(maker.render(
                record_of(R"({"instruction": "q", "input": "i", "system": "s", "output": "a"})"))),
            "s\nq\ni\na");
  const std::vector<Record> ids{record_of(R"({"input_ids": [5, 6, 7]})")};
  const ExampleMaker of_ids(nullptr,
                            {.fields = find_fields(ids), .max_tokens = 99, .vocabulary_size = 99});
  EXPECT_THAT(of_ids.make(ids.front()).trained, ElementsAre(1, 1, 1));
  EXPECT_THAT(
      of_ids.make(record_of(R"({"input_ids": [5, 6, 7], "labels": [-100, -100, 7]})")).trained,
      ElementsAre(0, 0, 1));
}

TEST(FieldMap, OptionIsRead) {
  EXPECT_EQ(parse_fields("prompt=a,answer=b"), (FieldMap{.prompt = "a", .answer = "b"}));
  EXPECT_EQ(parse_fields("text=a=b").text, "a=b");
  const auto problem = [](const char* text) {
    return files::message_of<ConfigError>([&] { parse_fields(text); });
  };
  EXPECT_THAT(problem("promt=a,answer=b"), HasSubstr("did you mean prompt?"));
  EXPECT_THAT(problem("prompt"), HasSubstr("is not PART=FIELD"));
  EXPECT_THAT(problem("prompt=a,"), HasSubstr("is not PART=FIELD"));
  for (const char* text : {"prompt=a", "answer=a", "prompt=a,answer=b,text=c", "input=a,text=b",
                           "text=a,labels=b", "system=a"}) {
    EXPECT_THAT(problem(text), HasSubstr("an example is made of")) << text;
  }
}

TEST(PromptPattern, PlacesAndEscapes) {
  EXPECT_EQ(parse_pattern_of_prompt(R"(Q: {}\nA: {}\\{{}})"),
            (PromptPattern{"Q: ", "\nA: ", "\\{}"}));
  for (const char* text : {"{}", "{}{}{}", "{} {name}", R"({}\x{})", "{}{}}"}) {
    EXPECT_THROW(parse_pattern_of_prompt(text), ConfigError) << text;
  }
}

// Compares with the models' own templates.
TEST(ChatFormat, EqualsPublishedTemplates) {
  for (const files::json::Value& expected : reference().at("chats").as_array()) {
    const ChatFormat format = parse_chat_format(expected.at("format").as_string());
    SCOPED_TRACE(name_of(format));
    const files::json::Value& list = expected.at("messages");
    const std::vector<Message> messages = read_messages(list);
    if (expected.at("text").is_null()) {
      EXPECT_THROW(render_chat(format, messages, "here"), DataError);
      continue;
    }
    const std::vector<TextSpan> spans = render_chat(format, messages, "here");
    EXPECT_EQ(joined(spans), expected.at("text").as_string());
    // Trained text is what the assistant says, and no more than a mark behind it.
    size_t at = 0;
    for (const TextSpan& span : spans) {
      if (!span.trained) continue;
      while (list.at(at).at("role").as_string() != "assistant") ++at;
      std::string said = list.at(at++).at("content").as_string();
      if (format == ChatFormat::llama3) {
        said.erase(0, said.find_first_not_of(" \n"));
        said.erase(said.find_last_not_of(" \n") + 1);
      }
      if (format == ChatFormat::chatglm3) said.insert(0, " ");
      EXPECT_TRUE(span.text.starts_with(said)) << span.text;
      const std::string mark = span.text.substr(said.size());
      EXPECT_TRUE(mark.empty() || mark == "</s>" || mark == "<|eot_id|>" || mark == "<|im_end|>")
          << mark;
      EXPECT_EQ(mark.empty(), !ends_itself(format));
    }
  }
}

TEST(ChatFormat, Mistral_PutsTheSystemMessageBeforeTheFirstOfTheUser) {
  const std::vector<Message> messages{
      {Speaker::system, "S"}, {Speaker::user, "U"}, {Speaker::assistant, "A"}};
  EXPECT_THAT(render_chat(ChatFormat::mistral, messages, ""),
              ElementsAre(TextSpan{"<s>[INST] S\n\nU [/INST]", false}, TextSpan{"A</s>", true}));
}

TEST(ChatFormat, BadMessages_AreNamedWithTheirPlace) {
  const auto problem = [](const std::string& list) {
    return files::message_of<DataError>([&] { read_messages(files::json::parse(list, "r")); });
  };
  EXPECT_THAT(problem(R"([{"role": "wizard", "content": ""}])"), HasSubstr("'wizard'"));
  EXPECT_THAT(problem(R"([{"role": "user", "content": "x"}])"), HasSubstr("nothing to learn"));
  EXPECT_THAT(problem(R"([{"role": "user"}])"), HasSubstr("\"content\" is missing"));
  EXPECT_THAT(problem(R"([{"role": "user", "content": 1}])"), HasSubstr("expected a string"));
  EXPECT_THAT(problem("{}"), HasSubstr("expected an array"));
  EXPECT_THAT(files::message_of<ConfigError>([] { parse_chat_format("llama"); }),
              HasSubstr("llama3, chatml"));
}

TEST(ChatFormat, SwitchesOfAMessage_KeepItFromBeingTrained) {
  const auto trained = [](const std::string& more, ChatFormat format) {
    const std::vector<Message> messages = read_messages(files::json::parse(
        R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad", )" + more +
            R"(}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "good"}])",
        "r"));
    std::string text;
    for (const TextSpan& span : render_chat(format, messages, "here")) {
      if (span.trained) text += span.text;
    }
    return text;
  };
  for (const char* off :
       {R"("weight": 0)", R"("weight": 0.0)", R"("train": false)", R"("loss": false)"}) {
    EXPECT_EQ(trained(off, ChatFormat::chatml), "good<|im_end|>") << off;
    EXPECT_EQ(trained(off, ChatFormat::mistral), "good</s>") << off;
  }
  EXPECT_EQ(trained(R"("weight": 1, "train": true, "loss": null)", ChatFormat::chatml),
            "bad<|im_end|>good<|im_end|>");
  EXPECT_THAT(
      files::message_of<DataError>([&] { trained(R"("weight": 0.5)", ChatFormat::chatml); }),
      HasSubstr("\"weight\" of a message is 0 or 1"));
}

TEST(ChatFormat, CallsOfTools_AreRefused) {
  const auto problem = [](const std::string& more) {
    return files::message_of<DataError>([&] {
      read_messages(files::json::parse(
          R"([{"role": "user", "content": "q"}, {"role": "assistant", )" + more + "}]", "r"));
    });
  };
  EXPECT_THAT(problem(R"("content": "", "tool_calls": [{"function": {}}])"),
              HasSubstr("a message has \"tool_calls\", which no chat format of zinc writes"));
  EXPECT_THAT(problem(R"("content": null, "function_call": {"name": "f"})"),
              HasSubstr("\"function_call\""));
  EXPECT_EQ(read_messages(files::json::parse(
                              R"([{"role": "assistant", "content": "a", "tool_calls": []}])", "r"))
                .size(),
            1U);
}

TEST(ChatFormat, TokenizersTellTheirs) {
  const text::ByteTokenizer bytes;
  EXPECT_EQ(chat_format_of(bytes), std::nullopt);
  const auto qwen = text::load_tokenizer("tests/reference/tokenizers/gpt2.json");
  EXPECT_EQ(chat_format_of(*qwen), std::nullopt);
}

std::vector<int32_t> ids_in(const files::json::Value& list) {
  std::vector<int32_t> ids;
  for (const files::json::Value& id : list.as_array())
    ids.push_back(static_cast<int32_t>(id.as_int64()));
  return ids;
}

// Labels as transformers has them: the token itself, or -100.
std::vector<int32_t> labels_of(const Example& example) {
  std::vector<int32_t> labels;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    labels.push_back(example.trained[i] != 0 ? example.tokens[i] : -100);
  }
  return labels;
}

class Masks : public testing::TestWithParam<const char*> {};

TEST_P(Masks, EqualPythons) {
  std::unique_ptr<text::Tokenizer> tokenizer;
  try {
    tokenizer = text::load_tokenizer(str("tests/reference/tokenizers/", GetParam(), ".json"));
  } catch (const ConfigError&) {
    GTEST_SKIP() << "this build lacks a library";
  }
  int compared = 0;
  for (const files::json::Value& expected : reference().at("masks").as_array()) {
    if (!expected.at("tokenizer").is_string(GetParam())) continue;
    files::json::Object fields;
    fields.set("prompt", expected.at("prompt"));
    fields.set("answer", expected.at("answer"));
    const Record record{.fields = std::move(fields), .place = "here"};
    SCOPED_TRACE(
        joined({{expected.at("prompt").as_string()}, {"|"}, {expected.at("answer").as_string()}}));
    ExampleSettings settings{.fields = {.prompt = "prompt", .answer = "answer"},
                             .max_tokens = expected.at("room").as_int64()};
    const Example tutorial = ExampleMaker(tokenizer.get(), settings).make(record);
    EXPECT_EQ(tutorial.tokens, ids_in(expected.at("ids")));
    EXPECT_EQ(labels_of(tutorial), ids_in(expected.at("labels")));
    settings.mask = Mask::offsets;
    const Example offsets = ExampleMaker(tokenizer.get(), settings).make(record);
    EXPECT_EQ(offsets.tokens, ids_in(expected.at("ids")));
    EXPECT_EQ(labels_of(offsets), ids_in(expected.at("labels_by_offsets")));
    settings.mask = Mask::none;
    const Example all = ExampleMaker(tokenizer.get(), settings).make(record);
    EXPECT_EQ(labels_of(all), ids_in(expected.at("ids")));
    ++compared;
  }
  EXPECT_EQ(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Masks, testing::Values("gpt2", "llama3", "qwen2", "roberta"),
                         [](const auto& param) { return std::string(param.param); });

Example bytes_of(const std::string& object, ExampleSettings settings) {
  static const text::ByteTokenizer bytes;
  return ExampleMaker(&bytes, settings).make(record_of(object));
}

std::string trained_text(const Example& example) {
  std::string text;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    if (example.trained[i] != 0) text += static_cast<char>(example.tokens[i]);
  }
  return text;
}

TEST(ExampleMaker, Chats_TrainWhatTheAssistantSays) {
  const Example example = bytes_of(
      R"({"m": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"},
                {"from": "human", "value": "Hu"}, {"from": "gpt", "value": "Ha"}]})",
      {.fields = {.messages = "m"}, .format = ChatFormat::chatml, .max_tokens = 500});
  EXPECT_EQ(trained_text(example), "Ho<|im_end|>Ha<|im_end|>");
}

TEST(ExampleMaker, PromptsWithInputAndSystem) {
  const FieldMap fields{.system = "s", .prompt = "p", .input = "i", .answer = "a"};
  const auto text = [&](const char* object, ChatFormat format) {
    static const text::ByteTokenizer bytes;
    const ExampleMaker maker(&bytes, {.fields = fields, .format = format, .max_tokens = 99});
    return joined(maker.render(record_of(object)));
  };
  EXPECT_EQ(text(R"({"p": "P", "i": "I", "a": 3, "s": "S"})", ChatFormat::plain), "S\nP\nI\n3");
  EXPECT_EQ(text(R"({"p": "P", "i": "", "a": true})", ChatFormat::plain), "P\ntrue");
  EXPECT_EQ(text(R"({"p": "P", "i": null, "a": "A", "s": "S"})", ChatFormat::chatglm3),
            "[gMASK]sop<|system|>\n S<|user|>\n P<|assistant|>\n A");
}

TEST(ExampleMaker, SystemBesideMessages_StandsFirst) {
  const std::vector<Record> records{record_of(
      R"({"system": "S", "messages": [{"role": "user", "content": "q"},
          {"role": "assistant", "content": "a"}]})")};
  const text::ByteTokenizer bytes;
  const ExampleMaker maker(&bytes, {.fields = find_fields(records), .max_tokens = 99});
  EXPECT_EQ(joined(maker.render(records.front())), "S\nq\na");
  EXPECT_THAT(maker.unused_fields(records.front()), ElementsAre());
  const char* two = R"({"system": "S", "messages": [{"role": "system", "content": ")";
  const char* rest = R"("}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(joined(maker.render(record_of(str(two, "S", rest)))), "S\na");
  EXPECT_THAT(files::message_of<DataError>([&] { maker.render(record_of(str(two, "T", rest))); }),
              HasSubstr("are two system messages; keep one"));
}

TEST(ExampleMaker, MasksBesideTokens_LeaveOutAndKeepFromTraining) {
  const ExampleSettings settings{
      .fields = {.tokens = "input_ids", .labels = "labels", .by_looking = true},
      .max_tokens = 99,
      .vocabulary_size = 99};
  const ExampleMaker maker(nullptr, settings);
  const auto make = [&](const std::string& more) {
    return maker.make(record_of(R"({"input_ids": [0, 0, 1, 2, 3], )" + more + "}"));
  };
  const Example padded = make(
      R"("attention_mask": [0, 0, 1, 1, 1], "position_ids": [1, 1, 0, 1, 2],
         "labels": [-100, -100, -100, 2, 3])");
  EXPECT_THAT(padded.tokens, ElementsAre(1, 2, 3));
  EXPECT_THAT(padded.trained, ElementsAre(0, 1, 1));
  for (const char* name : {"completion_mask", "loss_mask", "assistant_masks", "assistant_mask"}) {
    const Example masked = make(str('"', name, "\": [0, 0, 0, 1, true]"));
    EXPECT_THAT(masked.trained, ElementsAre(0, 0, 0, 1, 1)) << name;
  }
  const auto problem = [&](const std::string& more) {
    return files::message_of<DataError>([&] { make(more); });
  };
  EXPECT_THAT(problem(R"("attention_mask": [1])"), HasSubstr("has 1 values, but there are 5"));
  EXPECT_THAT(problem(R"("loss_mask": [0, 0, 0, 2, 1])"), HasSubstr("is 0 or 1, not 2"));
  EXPECT_THAT(problem(R"("position_ids": [0, 1, 0, 1, 2])"),
              HasSubstr("token 2 stands at position 0"));
}

TEST(ExampleMaker, TextIsTrainedWhole) {
  const Example example =
      bytes_of(R"({"text": "abc"})", {.fields = {.text = "text"}, .max_tokens = 2});
  EXPECT_EQ(trained_text(example), "ab");
  EXPECT_EQ(example.cut_tokens, 1);
  EXPECT_EQ(example.num_targets(), 1);
}

// A tokenizer whose tokens spell another text: lower case.
class LowerCase final : public text::Tokenizer {
 public:
  std::string_view name() const override { return "lower"; }
  int64_t vocabulary_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return ids;
  }
  bool append_bytes(int32_t token, bool, std::string& out) const override {
    out += static_cast<char>(token);
    return false;
  }
};

TEST(ExampleMaker, WhereTokensSpellAnotherText_PartsAreEncodedApart) {
  const LowerCase tokenizer;
  const ExampleMaker maker(
      &tokenizer,
      {.fields = {.prompt = "p", .answer = "a"}, .mask = Mask::offsets, .max_tokens = 99});
  const Example example = maker.make(record_of(R"({"p": "ABC", "a": "DEF"})"));
  EXPECT_EQ(trained_text(example), "def");
  EXPECT_EQ(example.tokens.size(), 7U);
}

TEST(ExampleMaker, TokenIds_WithTheirLabels) {
  const ExampleSettings settings{.fields = {.tokens = "input_ids", .labels = "labels"},
                                 .max_tokens = 99,
                                 .vocabulary_size = 10};
  const auto make = [&](const char* object) {
    return ExampleMaker(nullptr, settings).make(record_of(object));
  };
  const Example example = make(R"({"input_ids": [1, 2, 9], "labels": [-100, -100, 9]})");
  EXPECT_THAT(example.tokens, ElementsAre(1, 2, 9));
  EXPECT_THAT(example.trained, ElementsAre(0, 0, 1));
  const auto problem = [&](const char* object) {
    return files::message_of<DataError>([&] { make(object); });
  };
  EXPECT_THAT(problem(R"({"input_ids": [1, 10], "labels": [1, 10]})"),
              HasSubstr("r.jsonl:1:19: input_ids[1]: token 10 is outside the vocabulary of 10"));
  EXPECT_THAT(problem(R"({"input_ids": [1, 2], "labels": [1, 70000]})"),
              HasSubstr("label 70000 is outside the vocabulary"));
  EXPECT_THAT(problem(R"({"input_ids": [1, 2], "labels": [1, -1]})"), HasSubstr("label -1 is out"));
  EXPECT_THAT(problem(R"({"input_ids": [1, 2], "labels": [1, 3]})"),
              HasSubstr("label 3 stands beside token 2"));
  EXPECT_THAT(problem(R"({"input_ids": [1, 2], "labels": [1]})"),
              HasSubstr("there are 1 labels, but 2 tokens"));
}

// RoBERTa's tokenizer puts tokens around every text, of an answer too.
TEST(ExampleMaker, AnswersApart_HaveTheTokensOfTextsByThemselves) {
  const auto tokenizer = text::load_tokenizer("tests/reference/tokenizers/roberta.json");
  ExampleSettings settings{.fields = {.prompt = "p", .answer = "a"},
                           .pattern = parse_pattern_of_prompt("sum: {} \\n{}"),
                           .max_tokens = 99,
                           .labels = LabelsOf::text};
  const char* const object = R"({"p": "one two three", "a": "four"})";
  const Example whole = ExampleMaker(tokenizer.get(), settings).make(record_of(object));
  std::vector<int32_t> expected = tokenizer->encode_with_specials("sum: one two three");
  const size_t source = expected.size();
  for (const int32_t token : tokenizer->encode_with_specials("four")) expected.push_back(token);
  EXPECT_EQ(whole.tokens, expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(whole.trained[i], i < source ? 0 : 1) << i;
  }
  // A cut text keeps the token that ends it.
  settings.max_tokens = 4;
  const Example cut = ExampleMaker(tokenizer.get(), settings).make(record_of(object));
  EXPECT_THAT(std::vector(cut.tokens.begin(), cut.tokens.begin() + 4),
              ElementsAre(expected[0], expected[1], expected[2], expected[source - 1]));
  EXPECT_EQ(cut.cut_tokens, std::ssize(whole.tokens) - std::ssize(cut.tokens));
  EXPECT_GT(cut.cut_tokens, 0);
}

TEST(ExampleMaker, HiddenTokens_MayBeAllButSpecialOnes) {
  const auto tokenizer = text::load_tokenizer("tests/reference/tokenizers/roberta.json");
  ExampleSettings settings{.fields = {.text = "t"}, .max_tokens = 99, .labels = LabelsOf::masked};
  const char* const object = R"({"t": "one two<mask> three"})";
  const Example whole = ExampleMaker(tokenizer.get(), settings).make(record_of(object));
  ASSERT_EQ(whole.tokens, tokenizer->encode_with_specials("one two<mask> three"));
  const std::optional<int32_t> mask = tokenizer->mask_token();
  ASSERT_TRUE(mask);
  EXPECT_EQ(std::ranges::count(whole.tokens, *mask), 1);
  for (size_t i = 0; i < whole.tokens.size(); ++i) {
    const bool is_mark =
        i == 0 || i + 1 == whole.tokens.size() || whole.tokens[i] == tokenizer->mask_token();
    EXPECT_EQ(whole.trained[i], is_mark ? 0 : 1) << i;
  }
  // A cut text keeps the token that ends it.
  settings.max_tokens = 3;
  const Example cut = ExampleMaker(tokenizer.get(), settings).make(record_of(object));
  EXPECT_THAT(cut.tokens, ElementsAre(whole.tokens[0], whole.tokens[1], whole.tokens.back()));
  EXPECT_THAT(cut.trained, ElementsAre(0, 1, 0));
  EXPECT_THAT(files::message_of<DataError>([&] { bytes_of(object, settings); }),
              HasSubstr("need a tokenizer with a mask, as <mask> or [MASK]; bytes has none"));
}

TEST(ExampleMaker, ClassesApart_AreNamesOrNumbers) {
  ExampleSettings settings{.fields = {.prompt = "t", .answer = "c"},
                           .max_tokens = 3,
                           .labels = LabelsOf::row,
                           .num_classes = 3};
  const Example number = bytes_of(R"({"t": "abcd\n", "c": 2})", settings);
  EXPECT_THAT(number.tokens, ElementsAre('a', 'b', 'c', 2));
  EXPECT_THAT(number.trained, ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(number.cut_tokens, 1);
  const auto problem = [&](const char* object) {
    return files::message_of<DataError>([&] { bytes_of(object, settings); });
  };
  EXPECT_EQ(
      problem(R"({"t": "a", "c": "pos"})"),
      "r.jsonl:7: \"pos\" is no class of the model's 3; they are 0 to 2, and names of them are "
      "given by --classes");
  EXPECT_THAT(problem(R"({"t": "a", "c": 3})"), HasSubstr("\"3\" is no class"));
  EXPECT_THAT(problem(R"({"t": "a", "c": -1})"), HasSubstr("\"-1\" is no class"));
  EXPECT_THAT(problem(R"({"t": "\n", "c": 1})"), HasSubstr("r.jsonl:7: has an empty text"));
  settings.classes = {"neg", "pos", "2"};
  EXPECT_EQ(bytes_of(R"({"t": "a", "c": "pos"})", settings).tokens.back(), 1);
  EXPECT_THAT(problem(R"({"t": "a", "c": "Pos"})"), HasSubstr("3: neg, pos, 2"));
}

// Bytes are no tokens of this model, but nothing is encoded.
TEST(ExampleMaker, TokenIds_NeedNoTokenizerOfTheModel) {
  const text::ByteTokenizer bytes;
  ExampleSettings settings{
      .fields = {.tokens = "input_ids"}, .max_tokens = 9, .vocabulary_size = 10};
  EXPECT_THAT(ExampleMaker(&bytes, settings).make(record_of(R"({"input_ids": [3, 9]})")).tokens,
              ElementsAre(3, 9));
  settings.fields = {.text = "t"};
  EXPECT_THAT(files::message_of<DataError>([&] { ExampleMaker(&bytes, settings); }),
              HasSubstr("bytes has a vocabulary of 256, the model one of 10"));
}

TEST(ExampleMaker, TokenIdsWithLabelsApart_AreOfAnyLength) {
  const ExampleSettings settings{.fields = {.tokens = "input_ids", .labels = "labels"},
                                 .max_tokens = 99,
                                 .vocabulary_size = 10,
                                 .labels = LabelsOf::text};
  const ExampleMaker maker(nullptr, settings);
  const Example example = maker.make(record_of(R"({"input_ids": [1, 2, 9], "labels": [5, -100]})"));
  EXPECT_THAT(example.tokens, ElementsAre(1, 2, 9, 5));
  EXPECT_THAT(example.trained, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(files::message_of<DataError>(
                  [&] { maker.make(record_of(R"({"input_ids": [1], "labels": [10]})")); }),
              HasSubstr("label 10 is outside the vocabulary of 10"));
}

TEST(ExampleMaker, MissingFields_AreNamedWithThoseThatAreThere) {
  const ExampleSettings settings{.fields = {.prompt = "p", .answer = "a"}, .max_tokens = 9};
  EXPECT_THAT(files::message_of<DataError>([&] { bytes_of(R"({"p": "", "b": 1})", settings); }),
              HasSubstr("r.jsonl:7: has no field \"a\"; it has \"p\", \"b\""));
  EXPECT_THAT(files::message_of<DataError>([&] { bytes_of(R"({"p": "", "a": null})", settings); }),
              HasSubstr("field \"a\" is null"));
  EXPECT_THAT(files::message_of<DataError>([&] { bytes_of(R"({"p": "", "a": []})", settings); }),
              HasSubstr("expected text, got an array"));
}

TEST(ExampleMaker, TokenizerThatDoesNotFitTheModel_IsRefused) {
  const text::ByteTokenizer bytes;
  EXPECT_THAT(files::message_of<DataError>([&] {
                ExampleMaker(&bytes,
                             {.fields = {.text = "t"}, .max_tokens = 9, .vocabulary_size = 255});
              }),
              HasSubstr("has a vocabulary of 256, the model one of 255"));
}

class MakeExamples : public testing::Test {
 protected:
  ExampleCounts make(const std::string& content, const MakeOptions& options,
                     int64_t max_tokens = 8) {
    taken_.clear();
    const auto reader = open_records(folder_.write("a.jsonl", content));
    const text::ByteTokenizer bytes;
    const ExampleMaker maker(&bytes,
                             {.fields = {.prompt = "p", .answer = "a"}, .max_tokens = max_tokens});
    return make_examples(*reader, maker, options,
                         [&](const Record& record, const Example& example) {
                           taken_.push_back(record.place.substr(record.place.rfind(':') + 1) +
                                            trained_text(example));
                         });
  }
  files::ScratchFolder folder_;
  std::vector<std::string> taken_;
};

TEST_F(MakeExamples, CountsAndOrder) {
  std::string content;
  for (int i = 0; i < 20'000; ++i) content += str(R"({"p": "x", "a": ")", i % 10, "\"}\n");
  content += "{\"p\": \"toolongprompt\", \"a\": \"y\"}\n{\"p\": \"abcdef\", \"a\": \"yz\"}\n";
  for (const int threads : {1, 3}) {
    const ExampleCounts counts = make(content, {.threads = threads});
    EXPECT_EQ(counts.records, 20'002);
    EXPECT_EQ(counts.examples, 20'001);
    EXPECT_EQ(counts.tokens, 20'000 * 3 + 8);
    EXPECT_EQ(counts.targets, 20'000 * 2 + 2);
    EXPECT_EQ(counts.longest, 8);
    EXPECT_EQ(counts.truncated.count, 2);
    EXPECT_EQ(counts.cut_tokens, 7 + 1);
    EXPECT_EQ(counts.all_masked.count, 1);
    EXPECT_THAT(counts.all_masked.places, ElementsAre(HasSubstr("a.jsonl:20001")));
    ASSERT_EQ(taken_.size(), 20'001U);
    for (int i = 0; i < 20'000; ++i) ASSERT_EQ(taken_[i], str(i + 1, "\n", i % 10));
    EXPECT_EQ(taken_.back(), "20002\ny");
  }
}

TEST_F(MakeExamples, DamagedRecords_UpToALimit) {
  const std::string content =
      "{\"p\": \"a\", \"a\": \"1\"}\n{\"p\": }\n{\"p\": \"a\", \"a\": \"2\"}\n{\"q\": 1}\n";
  EXPECT_THAT(files::message_of<DataError>([&] { make(content, {}); }),
              testing::AllOf(HasSubstr("a.jsonl:2:7: "), HasSubstr("--skip-bad N leaves out")));
  EXPECT_THAT(files::message_of<DataError>([&] { make(content, {.skip_bad = 1}); }),
              testing::AllOf(HasSubstr("a.jsonl:4: has no field \"p\"; it has \"q\""),
                             HasSubstr("this is damaged record 2; --skip-bad 1")));
  const ExampleCounts counts = make(content, {.skip_bad = 2});
  EXPECT_EQ(counts.damaged.count, 2);
  EXPECT_EQ(counts.records, 4);
  EXPECT_THAT(taken_, ElementsAre("1\n1", "3\n2"));
}

TEST_F(MakeExamples, FieldsThatAreNotUsed_AreCounted) {
  const ExampleCounts counts = make(
      "{\"p\": \"a\", \"a\": \"1\", \"context\": \"c\", \"id\": null, \"empty\": []}\n"
      "{\"p\": \"a\", \"a\": \"1\", \"context\": \"c\", \"history\": [[1]]}\n",
      {});
  EXPECT_EQ(counts.unused, (std::map<std::string, int64_t>{{"context", 2}, {"history", 1}}));
  const std::vector<Record> records{record_of(
      R"({"messages": [{"role": "assistant", "reasoning_content": "think", "content": "a"}]})")};
  const text::ByteTokenizer bytes;
  const ExampleMaker maker(&bytes, {.fields = find_fields(records), .max_tokens = 99});
  EXPECT_THAT(maker.unused_fields(records.front()), ElementsAre("messages.reasoning_content"));
}

TEST_F(MakeExamples, AnArrayInAFileOfLines_IsNamed) {
  EXPECT_THAT(
      files::message_of<DataError>([&] { make("[{\"p\": \"a\", \"a\": \"1\"},\n", {}); }),
      HasSubstr("a.jsonl:1:1: a record is an object with named fields, not an array; a file "
                "that is one JSON array has a name that ends in .json"));
}

class MakeExamplesSlow : public MakeExamples {};

TEST_F(MakeExamplesSlow, ADamagedLineAmongAMillion_IsNamed) {
  std::string content;
  for (int i = 1; i <= 1'000'000; ++i) {
    content += i == 654'321 ? "{\"p\": \"a\", \"a\": 1\n" : "{\"p\": \"a\", \"a\": \"1\"}\n";
  }
  EXPECT_THAT(files::message_of<DataError>([&] { make(content, {.threads = 2}); }),
              HasSubstr("a.jsonl:654321:"));
  const ExampleCounts counts = make(content, {.threads = 2, .skip_bad = 1});
  EXPECT_EQ(counts.examples, 999'999);
  EXPECT_THAT(counts.damaged.places, ElementsAre(HasSubstr("a.jsonl:654321:")));
}

TEST_F(MakeExamples, NothingToLearn_IsAnError) {
  EXPECT_THAT(files::message_of<DataError>([&] { make("\n\n", {}); }),
              HasSubstr("holds no records"));
  EXPECT_THAT(
      files::message_of<DataError>([&] { make("{\"p\": \"abcdefgh\", \"a\": \"1\"}\n", {}); }),
      HasSubstr("nothing is learned from any of its 1 records"));
  EXPECT_THAT(files::message_of<DataError>([&] { make("{}\n{}\n", {.skip_bad = 9}); }),
              HasSubstr("all 2 records are damaged"));
}

TEST_F(MakeExamples, FieldsAreFoundDespiteDamage) {
  const std::string path = folder_.write("b.jsonl", "{\n{\"text\": \"x\"}\n");
  EXPECT_EQ(look_for_fields(path).describe(), "text=text");
  EXPECT_THAT(
      files::message_of<DataError>([&] { look_for_fields(folder_.write("c.jsonl", "{\n")); }),
      HasSubstr("c.jsonl:1:"));
}

}  // namespace examples_test
}  // namespace zinc::data
