// text/scores/rouge.h: how much of a reference text a generated one repeats.
//
// C.-Y. Lin, "ROUGE: A Package for Automatic Evaluation of Summaries" (2004), by the rules of the
// Python package rouge_score: text in lower case, words of ASCII letters and digits, words of more
// than three letters stemmed on request; ROUGE-L over the whole text; ROUGE-Lsum over lines, as the
// union of the longest common subsequences of each line of the reference with all of the other
// text.
#pragma once

#include <cstdint>
#include <string_view>

namespace zinc::text {

struct RougeScore {
  double precision = 0.0, recall = 0.0, f = 0.0;  // in [0, 1]
};

struct RougeScores {
  RougeScore rouge1, rouge2, rouge_l, rouge_lsum;
};

enum class RougeWords : uint8_t {
  plain,
  stemmed,     // words are replaced by porter_stem()
  characters,  // each character that is not white space is a word: for Chinese
};

// Both texts are UTF-8. Time and memory of ROUGE-Lsum grow with the product of their lengths.
RougeScores rouge(std::string_view reference, std::string_view generated,
                  RougeWords words = RougeWords::plain);

}  // namespace zinc::text
