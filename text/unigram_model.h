// text/unigram_model.h: the unigram language model (Kudo 2018): of all ways to cut a piece
// into tokens, the one of the highest sum of log probabilities.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace zinc::text {

class UnigramModel final : public TokenModel {
 public:
  struct Entry {
    std::string text;
    double score;  // log probability
  };
  // Token i is entries[i]. DataError for a score that is not finite, or `unknown` out of range.
  UnigramModel(std::vector<Entry> entries, std::optional<int32_t> unknown, bool byte_fallback);
  static std::unique_ptr<TokenModel> parse(const files::json::Value& part);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  void append(std::string_view text, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  std::optional<int32_t> unknown_;
  double unknown_score_ = 0.0;
  std::vector<int32_t> fallback_ids_;  // for <0x00> .. <0xFF>, or empty
  ByteTrie trie_;
};

}  // namespace zinc::text
