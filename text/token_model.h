// text/token_model.h: what turns one piece of text into token ids: the "model" of a
// tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "files/json/value.h"
#include "text/vocabulary.h"

namespace zinc::text {

// Several threads may use one at once.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual const Vocabulary& vocabulary() const = 0;
  // Appends the ids of `piece`, which is not empty. DataError where the model has no token for a
  // character and no unknown token either.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;
};

// `part`: {"type": "BPE" | "Unigram" | "WordPiece", ...}; a file without "type" is told by its
// keys. With `bytes` pieces are bytes and the vocabulary writes them as text/byte_level.h
// says. DataError, with the place, where the part is damaged or asks for something that zinc lacks.
std::unique_ptr<TokenModel> parse_token_model(const files::json::Value& part, bool bytes);

}  // namespace zinc::text
