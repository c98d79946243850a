// A model's figures on data: questions and choices read, answers written, likelihoods scored, by
// one rank and by several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/local/local.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "hub/model.h"
#include "hub/model_config.h"
#include "nn/models/gpt2.h"
#include "tests/files/scratch_folder.h"
#include "text/tokenizer_folder.h"
#include "train/evaluation/choice_questions.h"
#include "train/evaluation/evaluated_model.h"
#include "train/evaluation/written_answers.h"
#include "train/weights/save_model.h"

namespace zinc::train {
namespace evaluation_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A folder of fresh weights of bytes; larger ones than a fresh model has, so that its choices
// differ.
class ModelFolder {
 public:
  ModelFolder() {
    nn::Gpt2Config config;
    config.vocab_size = 256;
    config.max_positions = 48;
    config.hidden_size = 32;
    config.num_layers = 2;
    config.num_heads = 2;
    config.initializer_range = 0.3;
    comm::run_local_ranks(1, {.seed = 9, .num_threads = 1}, [&](comm::World& world) {
      nn::Gpt2 model(config);
      zero::Engine engine(model, {}, world);
      train::save_model(engine, {.config = config}, path());
    });
  }
  std::string path() const { return folder_ / "model"; }

 private:
  files::ScratchFolder folder_;
};

data::Record record_of(const std::string& object) {
  return {.fields = files::json::parse(object, "r.jsonl"), .place = "r.jsonl:7"};
}

data::ExampleMaker maker_of(const data::FieldMap& fields, data::ChatFormat format,
                            const text::Tokenizer& tokenizer) {
  return {&tokenizer, {.fields = fields, .format = format, .max_tokens = 64}};
}

// --- questions

TEST(Question, OfAPrompt_EndsWhereTheAnswerBegins) {
  const text::ByteTokenizer bytes;
  const data::FieldMap fields{.prompt = "q", .input = "i", .answer = "a"};
  data::ExampleSettings settings{.fields = fields, .max_tokens = 64};
  settings.pattern = data::parse_pattern_of_prompt("Q: {} A: {}!");
  const data::ExampleMaker maker(&bytes, settings);
  const data::Question question = maker.question(record_of(R"({"q": "one", "i": "two", "a": 3})"));
  EXPECT_EQ(question.prompt, "Q: one\ntwo A: ");
  EXPECT_EQ(question.answer, "3");
}

TEST(Question, OfAConversation_IsTheLastAnswer) {
  const text::ByteTokenizer bytes;
  const data::Record chat = record_of(
      R"({"m": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                {"role": "user", "content": "c"}, {"role": "assistant", "content": " d "},
                {"role": "user", "content": "e"}]})");
  const auto prompt = [&](data::ChatFormat format) {
    const data::Question question = maker_of({.messages = "m"}, format, bytes).question(chat);
    EXPECT_EQ(question.answer, " d ");
    return question.prompt;
  };
  EXPECT_EQ(prompt(data::ChatFormat::plain), "a\nb\nc\n");
  EXPECT_EQ(prompt(data::ChatFormat::mistral), "<s>[INST] a [/INST]b</s>[INST] c [/INST]");
  EXPECT_EQ(prompt(data::ChatFormat::chatglm3),
            "[gMASK]sop<|user|>\n a<|assistant|>\n b<|user|>\n c<|assistant|>\n");
  EXPECT_EQ(prompt(data::ChatFormat::chatml),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(prompt(data::ChatFormat::llama3),
              testing::EndsWith("<|start_header_id|>assistant<|end_header_id|>\n\n"));
}

TEST(Question, AnEmptyAnswer_HasTheSamePrompt) {
  const text::ByteTokenizer bytes;
  const data::Record chat = record_of(
      R"({"m": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]})");
  const data::Question question =
      maker_of({.messages = "m"}, data::ChatFormat::plain, bytes).question(chat);
  EXPECT_EQ(question.prompt, "a\n");
  EXPECT_EQ(question.answer, "");
}

TEST(Question, TextAlone_HasNone) {
  const text::ByteTokenizer bytes;
  const data::ExampleMaker maker = maker_of({.text = "t"}, data::ChatFormat::plain, bytes);
  EXPECT_THAT(files::message_of<DataError>([&] { maker.question(record_of(R"({"t": "a"})")); }),
              HasSubstr("r.jsonl:7: has text=t and no answer"));
}

TEST(Question, SpecialTokensBehindAText_AreNoPartOfAPrompt) {
  const auto bert = text::load_tokenizer("tests/reference/tokenizers/bert.json");
  const data::ExampleMaker maker =
      maker_of({.prompt = "q", .answer = "a"}, data::ChatFormat::plain, *bert);
  std::vector<int32_t> around = bert->encode_with_specials("hello");
  around.pop_back();
  EXPECT_EQ(maker.encode_prompt("hello"), around);
}

TEST(ReadQuestions, BadFiles_AreNamed) {
  const files::ScratchFolder folder;
  const text::ByteTokenizer bytes;
  const data::ExampleMaker maker =
      maker_of({.prompt = "q", .answer = "a"}, data::ChatFormat::plain, bytes);
  const auto read = [&](const std::string& content, int64_t skip_bad) {
    const std::string path = folder.write("q.jsonl", content);
    return files::message_of<DataError>([&] { read_questions(path, maker, skip_bad); });
  };
  EXPECT_THAT(read("", 0), HasSubstr("q.jsonl: holds no records"));
  EXPECT_THAT(read("{\"q\": \"1\", \"a\": \"2\"}\n{\"q\": \"1\"}\n", 0),
              HasSubstr("q.jsonl:2: has no field \"a\""));
  EXPECT_EQ(read("{\"q\": \"1\", \"a\": \"2\"}\n{\"q\": \"1\"}\n", 1), "(no error)");
  EXPECT_THAT(read("{\"q\": \"1\"}\n", 1), HasSubstr("all 1 records are damaged"));
}

TEST(SpreadIndices, TakeTheWholeLength) {
  EXPECT_THAT(spread_indices(10, 3), ElementsAre(0, 3, 6));
  EXPECT_THAT(spread_indices(3, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(spread_indices(2, 7), ElementsAre(0, 1));
}

// --- choices

TEST(ChoiceQuestion, OfTheUsualShapes) {
  const auto made = [](const std::string& object) {
    const std::vector<data::Record> records{record_of(object)};
    return choice_question(records[0], find_choice_fields(records));
  };
  const ChoiceQuestion harness = made(R"({"query": "Q", "choices": ["x", "y"], "gold": 1})");
  EXPECT_EQ(harness.question, "Q");
  EXPECT_THAT(harness.choices, ElementsAre("x", "y"));
  EXPECT_EQ(harness.answer, 1);
  EXPECT_EQ(made(R"({"question": "Q", "choices": ["3", "4"], "answer": "4"})").answer, 1);
  EXPECT_EQ(made(R"({"ctx": "Q", "endings": ["a b", "c d", "e"], "label": "2"})").answer, 2);
  EXPECT_EQ(made(R"({"question": "Q", "choices": ["u", "v", "w"], "answer": "C"})").answer, 2);
  const ChoiceQuestion arc = made(
      R"({"question": "Q", "choices": {"text": ["p", "q"], "label": ["1", "2"]}, "answerKey": "2"})");
  EXPECT_THAT(arc.choices, ElementsAre("p", "q"));
  EXPECT_EQ(arc.answer, 1);
}

TEST(ChoiceQuestion, BadRecords_AreNamed) {
  const auto problem = [](const std::string& object) {
    const ChoiceFields fields{.question = "question", .choices = "choices", .answer = "answer"};
    return files::message_of<DataError>([&] { choice_question(record_of(object), fields); });
  };
  EXPECT_THAT(problem(R"({"question": "Q", "choices": ["x"], "answer": 0})"),
              HasSubstr("at least two choices, not 1"));
  EXPECT_THAT(problem(R"({"question": "Q", "choices": ["x", ""], "answer": 0})"),
              HasSubstr("a choice is empty"));
  EXPECT_THAT(problem(R"({"question": "Q", "choices": ["x", "y"], "answer": 2})"),
              HasSubstr("answer 2 is outside the 2 choices"));
  EXPECT_THAT(problem(R"({"question": "Q", "choices": ["x", "y"], "answer": "zz"})"),
              HasSubstr("the answer 'zz' is none of the choices"));
  const std::vector<data::Record> records{record_of(R"({"question": "Q", "answer": 1})")};
  EXPECT_THAT(files::message_of<DataError>([&] { find_choice_fields(records); }),
              HasSubstr("the fields \"question\", \"answer\" have no choices"));
  EXPECT_THAT(files::message_of<ConfigError>([] { parse_choice_fields("question=a,choice=b"); }),
              HasSubstr("'choice=b' is not PART=FIELD"));
}

TEST(ChoiceTokens, WhiteSpaceBehindTheQuestionBelongsToTheChoice) {
  const text::ByteTokenizer bytes;
  const ChoiceQuestion question{.question = "ab ", .choices = {"c", "de"}, .place = "r:1"};
  const ChoiceTokens tokens =
      choice_tokens(bytes, {.before = "", .between = " ", .behind = ""}, question, 1, 100);
  EXPECT_THAT(tokens.tokens, ElementsAre('a', 'b', ' ', ' ', 'd', 'e'));
  EXPECT_EQ(tokens.first, 2);
  const ChoiceTokens cut =
      choice_tokens(bytes, {.before = "", .between = " ", .behind = ""}, question, 1, 4);
  EXPECT_THAT(cut.tokens, ElementsAre('b', ' ', ' ', 'd', 'e'));
  EXPECT_EQ(cut.first, 1);
  EXPECT_THAT(files::message_of<DataError>([&] {
                choice_tokens(bytes, {.before = "", .between = " ", .behind = ""}, question, 1, 3);
              }),
              HasSubstr("choice 1 alone is longer than the model's 3 positions"));
  const ChoiceQuestion empty{.question = "", .choices = {"c", "d"}, .place = "r:1"};
  EXPECT_THAT(files::message_of<DataError>([&] { choice_tokens(bytes, {}, empty, 0, 9); }),
              HasSubstr("r:1: the question is empty"));
}

// The right choice is the first by likelihood, the second per character, the third per byte.
TEST(ScoreLikelihoods, DivideByTheLengthOfTheChoice) {
  const std::vector<std::string> choices{"ab", "abcdefgh", "\u4e2d\u4e2d\u4e2d\u4e2d"};
  const std::vector<double> likelihoods{-2.0, -4.0, -3.0};
  const auto scores = [&](int64_t answer) {
    const std::vector<ChoiceQuestion> questions{
        {.question = "Q", .choices = choices, .answer = answer, .place = "r:1"}};
    const ChoiceScores s = score_likelihoods(questions, likelihoods);
    return std::vector<double>{s.acc, s.acc_norm, s.acc_bytes};
  };
  EXPECT_THAT(scores(0), ElementsAre(1.0, 0.0, 0.0));
  EXPECT_THAT(scores(1), ElementsAre(0.0, 1.0, 0.0));
  EXPECT_THAT(scores(2), ElementsAre(0.0, 0.0, 1.0));
}

TEST(ScoreLikelihoods, OfEqualChoicesTheFirst_AndTheErrorOfTheMean) {
  const ChoiceQuestion right{.question = "Q", .choices = {"a", "b"}, .answer = 0, .place = "r:1"};
  ChoiceQuestion wrong = right;
  wrong.answer = 1;
  const std::vector<ChoiceQuestion> questions{right, right, right, wrong};
  const ChoiceScores scores = score_likelihoods(questions, std::vector<double>(8, -1.0));
  EXPECT_DOUBLE_EQ(scores.acc, 0.75);
  EXPECT_DOUBLE_EQ(scores.acc_error, std::sqrt(0.75 * 0.25 / 3.0));
}

TEST(ScoreLikelihoods, WhatIsNoNumberIsAnError) {
  const std::vector<ChoiceQuestion> questions{
      {.question = "Q", .choices = {"a", "b"}, .answer = 0, .place = "r.jsonl:7"}};
  const std::vector<double> likelihoods{-1.0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THAT(files::message_of<NumericsError>([&] { score_likelihoods(questions, likelihoods); }),
              HasSubstr("r.jsonl:7: the log-likelihood of choice 1 is not a number"));
}

// --- on ranks

struct Outcome {
  ChoiceScores choices{};
  std::vector<std::string> answers{};
};

std::vector<ChoiceQuestion> some_choices() {
  std::vector<ChoiceQuestion> questions;
  for (int i = 0; i < 5; ++i) {
    questions.push_back({.question = "Question " + std::to_string(i),
                         .choices = {"one", "another", "the third " + std::to_string(i)},
                         .answer = i % 3,
                         .place = "r:" + std::to_string(i)});
  }
  return questions;
}

std::vector<PlacedQuestion> some_questions() {
  std::vector<PlacedQuestion> questions;
  for (int i = 0; i < 5; ++i) {
    questions.push_back({.question = {.prompt = std::string(1 + static_cast<size_t>(i), 'q') + ":",
                                      .answer = " a "},
                         .place = "r:" + std::to_string(i)});
  }
  return questions;
}

Outcome evaluate_on(const std::string& folder, int ranks, bool sharded) {
  Outcome outcome;
  comm::run_local_ranks(ranks, {.num_threads = 1}, [&](comm::World& world) {
    const hub::ModelConfigFile config = hub::read_model_config(folder);
    const text::ByteTokenizer bytes;
    EvaluatedModel model(folder, config.config, world, {.sharded = sharded});
    const data::ExampleMaker maker =
        maker_of({.prompt = "q", .answer = "a"}, data::ChatFormat::plain, bytes);
    // Answers end at different lengths, so that ranks call for each other.
    const WrittenAnswers written = write_answers(
        model, bytes, maker, some_questions(),
        {.generate = {.max_tokens = 6,
                      .sampling = {.temperature = 1.0},
                      .seed = 5,
                      .context = model.model().max_sequence(),
                      .ends = [](std::span<const int32_t> t) { return t.back() % 3 == 0; }}});
    const ChoiceScores choices = score_choices(model, bytes, {.between = " "}, some_choices());
    if (!world.is_main()) return;
    outcome.choices = choices;
    for (const text::TextPair& pair : written.pairs) {
      outcome.answers.push_back(pair.prediction);
      EXPECT_EQ(pair.references.front(), "a");
    }
  });
  return outcome;
}

TEST(EvaluatedModel, EveryWorld_WholeOrSharded_GivesTheSame) {
  const ModelFolder folder;
  const Outcome alone = evaluate_on(folder.path(), 1, false);
  EXPECT_EQ(alone.answers.size(), 5U);
  EXPECT_EQ(alone.choices.questions, 5);
  EXPECT_EQ(alone.choices.choices, 15);
  for (const int ranks : {1, 2, 3}) {
    for (const bool sharded : {false, true}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, sharded " << sharded);
      const Outcome outcome = evaluate_on(folder.path(), ranks, sharded);
      EXPECT_EQ(outcome.answers, alone.answers);
      EXPECT_EQ(outcome.choices.acc, alone.choices.acc);
      EXPECT_EQ(outcome.choices.acc_norm, alone.choices.acc_norm);
      EXPECT_EQ(outcome.choices.acc_bytes, alone.choices.acc_bytes);
    }
  }
}

TEST(GatherItems, KeepTheOrderOfTheItems) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_local_ranks(ranks, {.num_threads = 1}, [&](comm::World& world) {
      std::vector<double> mine;
      std::vector<std::vector<int32_t>> lists;
      int calls = 0;
      for_each_of_rank(world, 7, [&](int64_t item) {
        ++calls;
        if (item < 0) return;
        mine.push_back(static_cast<double>(10 * item));
        lists.emplace_back(static_cast<size_t>(item), static_cast<int32_t>(item));
      });
      EXPECT_EQ(calls, (7 + ranks - 1) / ranks);
      EXPECT_THAT(gather_items(world, 7, mine), ElementsAre(0, 10, 20, 30, 40, 50, 60));
      const auto all = gather_items(world, 7, lists);
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i], std::vector<int32_t>(i, static_cast<int32_t>(i)));
      }
    });
  }
}

// The log-likelihood is that of a pass over question and choice: the sum over the choice's tokens
// alone.
TEST(ScoreChoices, TheChoiceWithTheLargestLikelihoodWins) {
  const ModelFolder made;
  const std::string folder = made.path();
  comm::run_local_ranks(1, {.num_threads = 1}, [&](comm::World& world) {
    const hub::ModelConfigFile config = hub::read_model_config(folder);
    const text::ByteTokenizer bytes;
    EvaluatedModel model(folder, config.config, world);
    const auto loss_of = [&](const std::string& text, int64_t masked) {
      const std::vector<int32_t> tokens = bytes.encode(text);
      const auto n = std::ssize(tokens) - 1;
      std::vector<int32_t> labels(tokens.begin() + 1, tokens.end());
      std::fill_n(labels.begin(), masked, nn::kIgnoredLabel);
      return model
          .evaluate(
              {.tensors = {{"input_ids",
                            Tensor::from<int32_t>(
                                std::span<const int32_t>(tokens).first(tokens.size() - 1), {1, n})},
                           {"labels",
                            Tensor::from<int32_t>(std::span<const int32_t>(labels), {1, n})}},
               .num_targets = n - masked})
          .loss_sum;
    };
    // "Q" and then " x": the first two targets of the text are the choice's.
    const double x = loss_of("Q x", 0), y = loss_of("Q y", 0);
    ASSERT_NE(x, y);
    const int64_t best = x < y ? 0 : 1;
    const std::vector<ChoiceQuestion> questions{
        {.question = "Q", .choices = {"x", "y"}, .answer = best, .place = "r:1"}};
    EXPECT_EQ(score_choices(model, bytes, {.between = " "}, questions).acc, 1.0);
    // Without a space before it a choice is one token, whose likelihood is all that there is.
    const bool x_wins = loss_of("Qx", 0) < loss_of("Qy", 0);
    const std::vector<ChoiceQuestion> both_orders{
        {.question = "Q", .choices = {"x", "y"}, .answer = x_wins ? 0 : 1, .place = "r:1"},
        {.question = "Q", .choices = {"y", "x"}, .answer = x_wins ? 1 : 0, .place = "r:2"}};
    EXPECT_EQ(score_choices(model, bytes, {.between = ""}, both_orders).acc, 1.0);
  });
}

}  // namespace evaluation_test
}  // namespace zinc::train
