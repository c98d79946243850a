// train/text/tokenizer.h: from text to tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/text/utf8.h"

namespace zinc::train {

// Const member functions may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;    // "bytes"
  virtual int64_t vocabulary_size() const = 0;  // every token is below it
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The bytes that a token stands for: part of a character, or several. Throws DataError for a
  // token outside the vocabulary. The view lives as long as the tokenizer.
  virtual std::string_view bytes_of(int32_t token) const = 0;

  // Well-formed UTF-8: what is not becomes U+FFFD. decode(encode(text)) == text for well-formed
  // text.
  std::string decode(std::span<const int32_t> tokens) const;
};

// Text as it is generated: shows characters as soon as they are complete.
class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(int32_t token) { return stream_.push(tokenizer_->bytes_of(token)); }
  std::string finish() { return stream_.finish(); }

 private:
  const Tokenizer* tokenizer_;
  Utf8Stream stream_;
};

// One token per byte: vocabulary 256. Encodes any bytes.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  int64_t vocabulary_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string_view bytes_of(int32_t token) const override;
};

// Throws DataError, naming `what` (as in "the prompt") and the first token that a model with this
// vocabulary has no embedding for.
void require_in_vocabulary(std::string_view what, std::span<const int32_t> tokens,
                           int64_t vocabulary_size);

}  // namespace zinc::train
