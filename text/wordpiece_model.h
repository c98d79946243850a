// text/wordpiece_model.h: WordPiece, as BERT uses it: the longest token that a word begins
// with, then the longest continuation of the rest, and so on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace zinc::text {

struct WordPieceOptions {
  std::string unknown = "[UNK]";  // of a word that cannot be put together
  std::string prefix = "##";      // of a token that continues a word
  int64_t max_characters = 100;   // a longer word is unknown
};

class WordPieceModel final : public TokenModel {
 public:
  // DataError where the unknown token is not in the vocabulary.
  WordPieceModel(Vocabulary vocabulary, WordPieceOptions options);
  static std::unique_ptr<TokenModel> parse(const files::json::Value& part);

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary vocabulary_;
  WordPieceOptions options_;
  int32_t unknown_;
  ByteTrie first_, following_;
};

}  // namespace zinc::text
