// text/scores/score_pairs.h: one figure of many predictions and their references, by name.
//
//   | name                               | figure                                               |
//   |------------------------------------|------------------------------------------------------|
//   | rouge1, rouge2, rougeL, rougeLsum  | mean f over pairs; of several references the best     |
//   | bleu                               | of the corpus, in percent                            |
//   | exact_match, accuracy              | share of predictions that are a reference            |
//   | f1                                 | of the label `positive`                              |
//   | f1_micro, f1_macro                 | over all labels; the first reference is the label    |
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/scores/bleu.h"
#include "text/scores/rouge.h"

namespace zinc::text {

struct TextPair {
  std::string prediction;
  std::vector<std::string> references;  // at least one
};

struct ScoreOptions {
  RougeWords rouge_words = RougeWords::plain;
  BleuWords bleu_words = BleuWords::international;
  std::string positive = "1";
};

const std::vector<std::string>& score_names();
// Throws ConfigError for a name that is none of these, InvalidArgument for a pair without
// reference.
double score_of(std::string_view name, std::span<const TextPair> pairs,
                const ScoreOptions& options = {});

// JSON lines, {"prediction": "...", "reference": "..."} or "references": ["...", ...]; labels may
// be integers. Throws DataError with file and line.
std::vector<TextPair> read_pairs(const std::string& path);

}  // namespace zinc::text
