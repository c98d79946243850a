// text/json_tokenizer.h: a tokenizer made of the parts that a Hugging Face tokenizer.json
// names: added tokens, normalizer, pre-tokenizer, model, post-processor, decoder.
//
// Ids equal those of Hugging Face's tokenizers. "truncation" and "padding" are checked and without
// effect: how long a text may be is the run's business.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/json/value.h"
#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/piece_cache.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/token_model.h"
#include "text/tokenizer.h"

namespace zinc::text {

class JsonTokenizer final : public Tokenizer {
 public:
  struct Parts {
    std::string name;
    Normalizer normalizer{};
    PreTokenizer pre_tokenizer{};
    std::unique_ptr<TokenModel> model{};
    std::vector<AddedToken> added_tokens{};
    PostProcessor post_processor{};
    TokenDecoder decoder{};
    // Texts of tokens; ignored where the vocabulary has no such token.
    std::optional<std::string> end_of_text{}, mask_token{};
  };
  explicit JsonTokenizer(Parts parts);
  // DataError with the place where the file is damaged or asks for what zinc lacks; ConfigError
  // where it needs a library that this build has not.
  static std::unique_ptr<JsonTokenizer> parse(const files::json::Value& root, std::string name,
                                              std::optional<std::string> end_of_text = {},
                                              std::optional<std::string> mask_token = {});

  std::string_view name() const override { return parts_.name; }
  int64_t vocabulary_size() const override { return vocabulary_size_; }
  int64_t own_vocabulary_size() const override { return parts_.model->vocabulary().size(); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_with_specials(std::string_view text) const override;
  bool append_bytes(int32_t token, bool first, std::string& out) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  std::optional<int32_t> mask_token() const override { return mask_token_; }
  bool is_special(int32_t token) const override;

  std::optional<int32_t> find(std::string_view token) const;  // the id of a token

 private:
  class Call;
  const std::string& text_of(int32_t token) const;

  Parts parts_;
  AddedTokens added_;
  int64_t vocabulary_size_ = 0;
  std::optional<int32_t> end_of_text_, mask_token_;
  std::vector<std::string> bytes_;  // bytes of each token, where the decoder is ByteLevel
  mutable PieceCachePool caches_;
};

}  // namespace zinc::text
