// train/evaluation/written_answers.h: a model writes the answers of records, beside those that they
// hold.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/examples/example_maker.h"
#include "text/scores/score_pairs.h"
#include "text/tokenizer.h"
#include "train/evaluation/evaluated_model.h"

namespace zinc::train {

// A prompt with its answer, and where they stand.
struct PlacedQuestion {
  data::Question question;
  std::string place;  // "data.jsonl:17"
};

// Reads all records of a file. `skip_bad`: the number of damaged records that are left out. One
// more is a DataError, as are a file without records and a file whose records have no answers.
std::vector<PlacedQuestion> read_questions(const std::string& path, const data::ExampleMaker& maker,
                                           int64_t skip_bad);

// `most` of `count` indices, evenly spread; all where most is 0 or as large.
std::vector<int64_t> spread_indices(int64_t count, int64_t most);

struct WrittenAnswers {
  // In the order of the questions: the written text, the wanted text.
  std::vector<text::TextPair> pairs;
  int64_t tokens = 0;  // tokens that were written
  // Prompts whose front was cut, because the model's positions left no room.
  int64_t cut_prompts = 0;
};

struct WriteOptions {
  generate::GenerateOptions generate{};  // each question's number is added to its seed
  std::string stop_text{};               // ends an answer and does not belong to it; empty: nothing
};

// Ranks share the questions; the same answers in every world. White space around answers is left
// out on both sides. `progress` (may be empty) is told how many questions are done. Collective.
// DataError with the place for a prompt without tokens and for tokens that the model has not;
// NumericsError where the model's logits are no numbers.
WrittenAnswers write_answers(EvaluatedModel& model, const text::Tokenizer& tokenizer,
                             const data::ExampleMaker& maker,
                             const std::vector<PlacedQuestion>& questions,
                             const WriteOptions& options,
                             const std::function<void(int64_t done)>& progress = {});

}  // namespace zinc::train
