// text/scores/bleu.h: how many of a translation's n-grams its references have.
//
// K. Papineni et al., "BLEU" (2002), by the rules of the Python package sacrebleu: n up to 4,
// counts over the whole corpus, the shortest of the closest reference lengths, words by the
// tokenizer 13a of WMT's mteval script or, for Chinese, zh; an n without a hit counts as 1 / 2, 1 /
// 4, ... of one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zinc::text {

struct BleuScore {
  double score = 0.0;                  // in percent
  std::array<double, 4> precisions{};  // in percent
  double brevity_penalty = 0.0;
  int64_t generated_words = 0, reference_words = 0;
};

enum class BleuWords : uint8_t { international, chinese };

// Words of a text, separated by single spaces.
std::string bleu_words(std::string_view text, BleuWords words);

class Bleu {
 public:
  explicit Bleu(BleuWords words = BleuWords::international) : words_(words) {}
  // `references`: at least one. Throws InvalidArgument.
  void add(std::string_view generated, std::span<const std::string> references);
  // `single`: the score of one sentence, where orders that it is too short for do not count.
  BleuScore score(bool single = false) const;

 private:
  BleuWords words_;
  std::array<int64_t, 4> hits_{}, totals_{};
  int64_t generated_words_ = 0, reference_words_ = 0;
};

}  // namespace zinc::text
