#include "train/evaluation/written_answers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "data/records/record_reader.h"
#include "text/stop_strings.h"

namespace zinc::train {
namespace {

std::string without_space_around(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

std::string answer_in(const text::Tokenizer& tokenizer, std::span<const int32_t> tokens,
                      const text::StopStrings& stops) {
  text::AnswerStream stream(tokenizer, stops, true);
  std::string text;
  for (const int32_t token : tokens) text += stream.push(token);
  return without_space_around(text + stream.finish());
}

generate::GenerateOptions options_of_item(int64_t item, const text::StopStrings& stops,
                                          const WriteOptions& options) {
  generate::GenerateOptions own = options.generate;
  own.seed += static_cast<uint64_t>(std::max<int64_t>(item, 0));
  if (!stops.empty()) {
    own.ends = [&stops](std::span<const int32_t> tokens) { return stops.end(tokens); };
  }
  return own;
}

std::vector<int32_t> tokens_of_prompt(const data::ExampleMaker& maker,
                                      const PlacedQuestion& question, int64_t vocabulary) {
  std::vector<int32_t> prompt = maker.encode_prompt(question.question.prompt);
  if (prompt.empty()) throw DataError(str(question.place, ": the prompt is empty"));
  text::require_in_vocabulary(str(question.place, ": the prompt"), prompt, vocabulary);
  return prompt;
}

}  // namespace

std::vector<PlacedQuestion> read_questions(const std::string& path, const data::ExampleMaker& maker,
                                           int64_t skip_bad) {
  std::vector<PlacedQuestion> questions;
  data::use_records(path, skip_bad, [&](const data::Record& record) {
    questions.push_back({.question = maker.question(record), .place = record.place});
  });
  return questions;
}

std::vector<int64_t> spread_indices(int64_t count, int64_t most) {
  const int64_t taken = most > 0 ? std::min(most, count) : count;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < taken; ++i) indices.push_back(i * count / taken);
  return indices;
}

WrittenAnswers write_answers(EvaluatedModel& model, const text::Tokenizer& tokenizer,
                             const data::ExampleMaker& maker,
                             const std::vector<PlacedQuestion>& questions,
                             const WriteOptions& options,
                             const std::function<void(int64_t done)>& progress) {
  const auto count = static_cast<int64_t>(questions.size());
  std::vector<std::string> stop_texts;
  if (!options.stop_text.empty()) stop_texts.push_back(options.stop_text);
  const text::StopStrings stops(tokenizer, std::move(stop_texts));
  std::vector<std::vector<int32_t>> prompts, mine;
  std::vector<double> cut;
  for_each_of_rank(model.world(), count, [&](int64_t item) {
    if (item < 0) return;
    prompts.push_back(
        tokens_of_prompt(maker, questions[static_cast<size_t>(item)], model.model().vocab_size()));
  });
  for_each_of_rank(model.world(), count, [&](int64_t item) {
    generate::GenerateOptions own = options_of_item(item, stops, options);
    const std::optional<int32_t> end = maker.end_of_answer();
    if (own.stop_tokens.empty() && end) own.stop_tokens = {*end};
    std::vector<std::vector<int32_t>> asked;
    if (item >= 0) asked.push_back(prompts[mine.size()]);
    std::vector<generate::GeneratedTexts> texts = model.generate(asked, own);
    if (item < 0) return;
    cut.push_back(std::ssize(asked.front()) > own.context ? 1.0 : 0.0);
    mine.push_back(std::move(texts.front().front().tokens));
    if (progress) progress(std::min(count, item + model.world().size()));
  });
  const auto all = gather_items(model.world(), count, mine);
  WrittenAnswers answers;
  for (const double one : gather_items(model.world(), count, cut)) {
    answers.cut_prompts += static_cast<int64_t>(one);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    answers.tokens += static_cast<int64_t>(all[i].size());
    answers.pairs.push_back({.prediction = answer_in(tokenizer, all[i], stops),
                             .references = {without_space_around(questions[i].question.answer)}});
  }
  return answers;
}

}  // namespace zinc::train
