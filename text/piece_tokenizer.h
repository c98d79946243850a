// text/piece_tokenizer.h: a sentencepiece model as a tokenizer, with tokens on top of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/piece_model.h"
#include "text/post_processor.h"
#include "text/tokenizer.h"

namespace zinc::text {

class PieceTokenizer final : public Tokenizer {
 public:
  struct Parts {
    std::string name;
    std::unique_ptr<PieceModel> model;
    std::vector<AddedToken> added_tokens{};  // not normalised
    PostProcessor post_processor{};
    std::optional<int32_t> end_of_text{};
  };
  explicit PieceTokenizer(Parts parts);

  std::string_view name() const override { return parts_.name; }
  int64_t vocabulary_size() const override { return vocabulary_size_; }
  int64_t own_vocabulary_size() const override { return parts_.model->size(); }
  // The text between added tokens is encoded part by part.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_with_specials(std::string_view text) const override;
  bool append_bytes(int32_t token, bool first, std::string& out) const override;
  // The pieces between added tokens are decoded part by part, too.
  std::string decode(std::span<const int32_t> tokens) const override;
  std::optional<int32_t> end_of_text() const override { return parts_.end_of_text; }

 private:
  Parts parts_;
  AddedTokens added_;
  int64_t vocabulary_size_;
  bool drops_all_spaces_ = false;  // from the front of a text; false: drops the first space only
};

}  // namespace zinc::text
