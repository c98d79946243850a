// text/added_tokens.h: tokens that are found in text before anything else looks at it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/json/value.h"
#include "text/byte_trie.h"
#include "text/function_ref.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

namespace zinc::text {

struct AddedToken {
  int32_t id = 0;
  std::string content{};
  bool single_word = false;  // only where no word character stands beside it
  bool strip_left = false;   // takes the spaces before it
  bool strip_right = false;  // takes the spaces behind it
  bool normalized = false;   // looked for in normalised text, not in the text itself
  bool special = false;      // counts before others of the same text
  // The text that decoding shows, set by AddedTokens: the content, normalised if `normalized` is
  // true.
  std::string shown{};
};

// A part of a text: a token, or text between tokens (id -1).
struct TextPart {
  std::string_view text;
  int32_t id;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // The normalizer is applied to the contents of normalised tokens.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);
  // The "added_tokens" of a tokenizer.json, or null. A token that the model has, has the model's
  // id.
  static std::vector<AddedToken> parse(const files::json::Value* list, const Vocabulary& model);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  // Cuts `text` at the tokens of one kind, leftmost first, and the longest of several at one place.
  void split(std::string_view text, bool normalized, FunctionRef<void(TextPart)> visit) const;

 private:
  struct Kind {
    ByteTrie trie;  // to indices in tokens_
    std::vector<bool> begins = std::vector<bool>(256, false);
    int first_byte = -1;  // the only first byte that tokens have; -1: several
    bool empty = true;
  };
  static size_t next_start(const Kind& kind, std::string_view text, size_t at);
  static void add(Kind& kind, std::string_view content, size_t place);

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> place_of_;  // by id, an index in tokens_; -1: not an added token
  Kind raw_, normalized_;
};

}  // namespace zinc::text
