// train/evaluation/choice_questions.h: questions with several choices; the model answers with the
// most likely one.
//
// A question's text is followed by each choice in turn; the model's answer is the choice whose
// tokens have the largest log-likelihood behind the question. The scores follow EleutherAI's
// lm-evaluation-harness for tasks of multiple_choice (the first of equal choices counts):
//   acc        share of questions whose largest log-likelihood is the right choice's
//   acc_norm   the same of log-likelihoods divided by the choice's length in characters
//   acc_bytes  the same, by its length in bytes
// where lengths are those of the choice alone, without the text between question and choice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/examples/prompt_pattern.h"
#include "data/records/record_reader.h"
#include "text/tokenizer.h"
#include "train/evaluation/evaluated_model.h"

namespace zinc::train {

// Names of a record's fields.
struct ChoiceFields {
  std::string question;
  std::string choices;  // a list of texts, or {"text": [...], "label": [...]}
  std::string answer;   // the right choice, see choice_question()

  std::string describe() const;  // "question=ctx, choices=endings, answer=label"
};

// The first names of each list that all records have:
//   question   query, question, ctx, context, prompt, goal
//   choices    choices, endings, options
//   answer     gold, answer, label, answerKey, target
// DataError that names the fields that are there. "question=q,choices=c,answer=a" says them itself;
// ConfigError for a part that does not exist.
ChoiceFields find_choice_fields(std::span<const data::Record> records);
ChoiceFields parse_choice_fields(std::string_view text);

struct ChoiceQuestion {
  std::string question;
  std::vector<std::string> choices;  // at least two, none of them empty
  int64_t answer = 0;                // 0 <= answer < choices.size()
  std::string place;                 // "data.jsonl:17"
};

// The answer is a number, from 0; or a text: a choice itself, one of the choices' labels, a letter
// from A, or the digits of a number. DataError with the record's place for anything else, and for
// an answer that is none of the choices.
ChoiceQuestion choice_question(const data::Record& record, const ChoiceFields& fields);

// Reads all records of a file; see read_questions(). `fields`: null to look at the first records.
std::vector<ChoiceQuestion> read_choice_questions(const std::string& path,
                                                  const ChoiceFields* fields, int64_t skip_bad);

// A question and a choice as tokens.
struct ChoiceTokens {
  std::vector<int32_t> tokens;
  int64_t first = 0;  // token of the choice, > 0
};
// Cuts question and choice as lm-evaluation-harness does: both are encoded as one text, white space
// behind the question belongs to the choice, and the choice begins behind as many tokens as the
// question alone has. Keeps at most the last `most` + 1 tokens. DataError with the place if a
// choice has no token, or nothing precedes it.
ChoiceTokens choice_tokens(const text::Tokenizer& tokenizer, const data::PromptPattern& pattern,
                           const ChoiceQuestion& question, size_t choice, int64_t most);

struct ChoiceScores {
  int64_t questions = 0;
  int64_t choices = 0;                                // of all questions
  double acc = 0.0, acc_norm = 0.0, acc_bytes = 0.0;  // in [0, 1]
  // Standard error of the mean: sqrt(acc (1 - acc) / (questions - 1)); 0 for one question.
  double acc_error = 0.0, acc_norm_error = 0.0, acc_bytes_error = 0.0;
};

// Ranks share the choices; the same scores in every world. Collective. NumericsError where a
// log-likelihood is no number.
ChoiceScores score_choices(EvaluatedModel& model, const text::Tokenizer& tokenizer,
                           const data::PromptPattern& pattern,
                           const std::vector<ChoiceQuestion>& questions,
                           const std::function<void(int64_t done)>& progress = {});
// Scores the log-likelihoods of the choices of all questions, in a row.
ChoiceScores score_likelihoods(std::span<const ChoiceQuestion> questions,
                               std::span<const double> likelihoods);

}  // namespace zinc::train
