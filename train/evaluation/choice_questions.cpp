#include "train/evaluation/choice_questions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "data/examples/field_map.h"
#include "data/examples/make_examples.h"
#include "nn/batch.h"
#include "text/scores/characters.h"

namespace zinc::train {
namespace {

struct ChoicePart {
  std::string_view name;
  std::string ChoiceFields::*field;
  std::vector<std::string_view> known;
};

const std::array<ChoicePart, 3>& choice_parts() {
  static const std::array<ChoicePart, 3> kParts{
      {{"question",
        &ChoiceFields::question,
        {"query", "question", "ctx", "context", "prompt", "goal"}},
       {"choices", &ChoiceFields::choices, {"choices", "endings", "options"}},
       {"answer", &ChoiceFields::answer, {"gold", "answer", "label", "answerKey", "target"}}}};
  return kParts;
}

std::string fields_of(const data::Record& record) {
  std::string names;
  for (const files::json::Member& member : record.fields.as_object()) {
    names += str(names.empty() ? "" : ", ", '"', member.key, '"');
  }
  return names.empty() ? "none" : names;
}

// Labels that the record gives its choices itself, as in ARC's {"text": [...], "label": [...]}.
std::vector<std::string> choices_in(const files::json::Value& list) {
  std::vector<std::string> texts;
  for (const files::json::Value& value : list.as_array()) texts.push_back(data::text_of(value));
  return texts;
}

std::optional<int64_t> place_among(const std::vector<std::string>& texts, std::string_view text) {
  const auto found = std::ranges::find(texts, text);
  if (found == texts.end()) return std::nullopt;
  return found - texts.begin();
}

// The index of a letter, from A. Only if there are as many choices: a text of one letter may be
// anything.
std::optional<int64_t> index_of_letter(std::string_view text, size_t choices) {
  if (text.size() != 1) return std::nullopt;
  const int64_t index = text[0] >= 'a' ? text[0] - 'a' : text[0] - 'A';
  if (index < 0 || index >= static_cast<int64_t>(choices)) return std::nullopt;
  return index;
}

std::optional<int64_t> number_written(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int64_t right_choice(const files::json::Value& value, const std::vector<std::string>& choices,
                     const std::vector<std::string>& labels) {
  std::optional<int64_t> index;
  if (value.is_number()) {
    index = value.as_int64();
  } else {
    const std::string& text = value.as_string();
    index = place_among(choices, text);
    if (!index) index = place_among(labels, text);
    if (!index) index = index_of_letter(text, choices.size());
    if (!index) index = number_written(text);
    if (!index) value.fail(str("the answer '", text, "' is none of the choices"));
  }
  if (*index < 0 || *index >= std::ssize(choices)) {
    value.fail(
        str("answer ", *index, " is outside the ", choices.size(), " choices, which count from 0"));
  }
  return *index;
}

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for ([[maybe_unused]] const std::string_view character : text::CharactersOf(text)) ++count;
  return count;
}

// Encodes a text without the special tokens behind it.
std::vector<int32_t> encode_front(const text::Tokenizer& tokenizer, std::string_view text,
                                  size_t tail) {
  std::vector<int32_t> tokens = tokenizer.encode_with_specials(text);
  tokens.resize(tokens.size() - std::min(tail, tokens.size()));
  return tokens;
}

size_t count_specials_behind(const text::Tokenizer& tokenizer) {
  const std::vector<int32_t> around = tokenizer.encode_with_specials("a");
  const std::vector<int32_t> bare = tokenizer.encode("a");
  const auto inner = std::search(around.begin(), around.end(), bare.begin(), bare.end());
  if (inner == around.end()) return 0;
  return static_cast<size_t>(around.end() - inner) - bare.size();
}

nn::Batch batch_of_choice(const ChoiceTokens& choice) {
  const auto positions = static_cast<int64_t>(choice.tokens.size()) - 1;
  const std::span<const int32_t> tokens(choice.tokens);
  std::vector<int32_t> labels(tokens.begin() + 1, tokens.end());
  std::fill_n(labels.begin(), choice.first - 1, nn::kIgnoredLabel);
  return {.tensors = {{"input_ids",
                       Tensor::from<int32_t>(tokens.first(tokens.size() - 1), {1, positions})},
                      {"labels", Tensor::from<int32_t>(labels, {1, positions})}},
          .num_targets = positions - (choice.first - 1),
          .num_tokens = positions};
}

nn::Batch batch_of_nothing() {
  return {.tensors = {
              {"input_ids", Tensor::from<int32_t>(std::vector<int32_t>{0}, {1, 1})},
              {"labels", Tensor::from<int32_t>(std::vector<int32_t>{nn::kIgnoredLabel}, {1, 1})}}};
}

double error_of_share(double share, int64_t count) {
  return count > 1 ? std::sqrt(share * (1.0 - share) / static_cast<double>(count - 1)) : 0.0;
}

}  // namespace

std::string ChoiceFields::describe() const {
  return str("question=", question, ", choices=", choices, ", answer=", answer);
}

ChoiceFields find_choice_fields(std::span<const data::Record> records) {
  require(!records.empty(), "find_choice_fields: there are no records");
  ChoiceFields fields;
  for (const ChoicePart& part : choice_parts()) {
    const auto in_all = [&](std::string_view name) {
      return std::ranges::all_of(records, [&](const data::Record& record) {
        return record.fields.find(std::string(name)) != nullptr;
      });
    };
    const auto found = std::ranges::find_if(part.known, in_all);
    if (found == part.known.end()) {
      throw DataError(str(records.front().place, ": the fields ", fields_of(records.front()),
                          " have no ", part.name,
                          " of a question with choices; say which is what, as in --fields "
                          "question=NAME,choices=NAME,answer=NAME"));
    }
    fields.*part.field = *found;
  }
  return fields;
}

ChoiceFields parse_choice_fields(std::string_view text) {
  ChoiceFields fields;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = std::min(item.find('='), item.size());
    const auto part = std::ranges::find_if(choice_parts(), [&](const ChoicePart& each) {
      return each.name == item.substr(0, equals);
    });
    if (part == choice_parts().end() || equals + 1 >= item.size()) {
      throw ConfigError(str("--fields: '", item,
                            "' is not PART=FIELD; parts of --metric choice are question, "
                            "choices and answer"));
    }
    fields.*part->field = item.substr(equals + 1);
  }
  for (const ChoicePart& part : choice_parts()) {
    if (!(fields.*part.field).empty()) continue;
    throw ConfigError(str("--fields ", text, ": ", part.name, " is missing"));
  }
  return fields;
}

ChoiceQuestion choice_question(const data::Record& record, const ChoiceFields& fields) {
  ChoiceQuestion question{.question = data::text_of(data::require_field(record, fields.question)),
                          .choices = {},
                          .place = record.place};
  const files::json::Value& choices = data::require_field(record, fields.choices);
  std::vector<std::string> labels;
  if (choices.is_object()) {
    question.choices = choices_in(choices.at("text"));
    if (const files::json::Value* names = choices.find("label")) labels = choices_in(*names);
  } else {
    question.choices = choices_in(choices);
  }
  if (question.choices.size() < 2) {
    choices.fail(str("a question needs at least two choices, not ", question.choices.size()));
  }
  if (place_among(question.choices, "")) choices.fail("a choice is empty");
  question.answer =
      right_choice(data::require_field(record, fields.answer), question.choices, labels);
  return question;
}

std::vector<ChoiceQuestion> read_choice_questions(const std::string& path,
                                                  const ChoiceFields* fields, int64_t skip_bad) {
  ChoiceFields found;
  if (fields != nullptr) {
    found = *fields;
  } else {
    found = find_choice_fields(data::first_records(path));
  }
  std::vector<ChoiceQuestion> questions;
  data::use_records(path, skip_bad, [&](const data::Record& record) {
    questions.push_back(choice_question(record, found));
  });
  return questions;
}

ChoiceTokens choice_tokens(const text::Tokenizer& tokenizer, const data::PromptPattern& pattern,
                           const ChoiceQuestion& question, size_t choice, int64_t most) {
  std::string context = pattern.before + question.question;
  const size_t last = context.find_last_not_of(" \t\n\r\f\v");
  const size_t kept = last == context.npos ? 0 : last + 1;
  const std::string all = context + pattern.between + question.choices[choice] + pattern.behind;
  context.resize(kept);
  const size_t tail = count_specials_behind(tokenizer);
  ChoiceTokens made{.tokens = encode_front(tokenizer, all, tail)};
  made.first = std::ssize(encode_front(tokenizer, context, tail));
  if (made.first == 0) {
    const std::optional<int32_t> begin = tokenizer.end_of_text();
    if (!begin) throw DataError(str(question.place, ": the question is empty"));
    made.tokens.insert(made.tokens.begin(), *begin);
    made.first = 1;
  }
  int64_t surplus = std::ssize(made.tokens) - (most + 1);
  if (surplus > 0) {
    made.tokens.erase(made.tokens.begin(), made.tokens.begin() + surplus);
    made.first -= surplus;
  }
  if (made.first >= std::ssize(made.tokens)) {
    throw DataError(str(question.place, ": choice ", choice,
                        " adds no token to the question: nothing can be compared"));
  }
  if (made.first < 1) {
    throw DataError(str(question.place, ": choice ", choice, " alone is longer than the model's ",
                        most, " positions"));
  }
  return made;
}

ChoiceScores score_choices(EvaluatedModel& model, const text::Tokenizer& tokenizer,
                           const data::PromptPattern& pattern,
                           const std::vector<ChoiceQuestion>& questions,
                           const std::function<void(int64_t done)>& progress) {
  std::vector<std::pair<size_t, size_t>> items;  // question, choice
  for (size_t i = 0; i < questions.size(); ++i) {
    for (size_t c = 0; c < questions[i].choices.size(); ++c) items.emplace_back(i, c);
  }
  const auto count = std::ssize(items);
  std::vector<ChoiceTokens> own;
  for_each_of_rank(model.world(), count, [&](int64_t item) {
    if (item < 0) return;
    const auto [number, choice] = items[static_cast<size_t>(item)];
    own.push_back(
        choice_tokens(tokenizer, pattern, questions[number], choice, model.model().max_sequence()));
    text::require_in_vocabulary(questions[number].place, own.back().tokens,
                                model.model().vocab_size());
  });
  std::vector<double> mine;
  for_each_of_rank(model.world(), count, [&](int64_t item) {
    if (item < 0) {
      model.evaluate(batch_of_nothing());
      return;
    }
    mine.push_back(-model.evaluate(batch_of_choice(own[mine.size()])).loss_sum);
    if (progress) progress(std::min(count, item + model.world().size()));
  });
  return score_likelihoods(questions, gather_items(model.world(), count, mine));
}

ChoiceScores score_likelihoods(std::span<const ChoiceQuestion> questions,
                               std::span<const double> likelihoods) {
  ChoiceScores scores{.questions = std::ssize(questions), .choices = std::ssize(likelihoods)};
  require(scores.questions > 0, "score_likelihoods: there are no questions");
  int64_t right = 0, right_norm = 0, right_bytes = 0;
  size_t at = 0;
  for (const ChoiceQuestion& question : questions) {
    std::vector<double> plain, norm, bytes;
    for (size_t c = 0; c < question.choices.size(); ++c) {
      const double likelihood = likelihoods[at++];
      if (!std::isfinite(likelihood)) {
        throw NumericsError(str(question.place, ": the log-likelihood of choice ", c,
                                " is not a number: the model's weights are damaged, or too "
                                "large for their type"));
      }
      const std::string& choice = question.choices[c];
      plain.push_back(likelihood);
      norm.push_back(likelihood / static_cast<double>(count_characters(choice)));
      bytes.push_back(likelihood / static_cast<double>(choice.size()));
    }
    const auto is_right = [&](const std::vector<double>& values) {
      return std::ranges::max_element(values) - values.begin() == question.answer ? 1 : 0;
    };
    right += is_right(plain);
    right_norm += is_right(norm);
    right_bytes += is_right(bytes);
  }
  const auto share = [&](int64_t of) {
    return static_cast<double>(of) / static_cast<double>(scores.questions);
  };
  scores.acc = share(right);
  scores.acc_norm = share(right_norm);
  scores.acc_bytes = share(right_bytes);
  scores.acc_error = error_of_share(scores.acc, scores.questions);
  scores.acc_norm_error = error_of_share(scores.acc_norm, scores.questions);
  scores.acc_bytes_error = error_of_share(scores.acc_bytes, scores.questions);
  return scores;
}

}  // namespace zinc::train
