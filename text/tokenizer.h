// text/tokenizer.h: from text to tokens and back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/utf8.h"

namespace zinc::text {

// Const member functions may be called from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;    // "bytes", or the file that it was read from
  virtual int64_t vocabulary_size() const = 0;  // every token is below it
  // The same bound without added tokens.
  virtual int64_t own_vocabulary_size() const { return vocabulary_size(); }
  // The tokens of a text and nothing around them. Bytes that are not UTF-8 count as U+FFFD (the
  // byte tokenizer keeps them).
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Encodes with the special tokens that the tokenizer puts around a text, as in <s> ... </s>.
  virtual std::vector<int32_t> encode_with_specials(std::string_view text) const {
    return encode(text);
  }
  // Appends the bytes that a token adds to a text: part of a character, or several. `first`: it is
  // the first token of the text. Returns whether the next token counts as the first, too: where
  // this one was a mark, or a space that is removed from the front. A token outside the vocabulary
  // adds nothing: many models have more rows than their tokenizer has tokens, and may write one of
  // them.
  virtual bool append_bytes(int32_t token, bool first, std::string& out) const = 0;
  // Returns well-formed UTF-8: ill-formed parts become U+FFFD. decode(encode(text)) == text for
  // well-formed text and a tokenizer of bytes.
  virtual std::string decode(std::span<const int32_t> tokens) const;
  // The token that ends a document; absent where the tokenizer names none.
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }
  // The token that stands for one to be guessed; absent where the tokenizer names none.
  virtual std::optional<int32_t> mask_token() const { return std::nullopt; }
  // Whether the token is a mark and no text, such as the begin, the end or the padding of a text.
  virtual bool is_special(int32_t token) const {
    static_cast<void>(token);
    return false;
  }

 protected:
  bool has(int32_t token) const { return token >= 0 && token < vocabulary_size(); }
};

// Text as it is generated: shows characters as soon as they are complete.
class StreamingDecoder {
 public:
  // `goes_on`: the tokens follow others, such as a prompt, so the first one is not the first of the
  // text.
  explicit StreamingDecoder(const Tokenizer& tokenizer, bool goes_on = false)
      : tokenizer_(&tokenizer), first_(!goes_on) {}
  std::string push(int32_t token);
  std::string finish() { return stream_.finish(); }

 private:
  const Tokenizer* tokenizer_;
  bool first_;
  files::Utf8Stream stream_;
};

// One token per byte: vocabulary 256. Encodes any bytes.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  int64_t vocabulary_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override;
  bool append_bytes(int32_t token, bool first, std::string& out) const override;
};

// Throws DataError, naming `what` (as in "the prompt") and the first token that a model with this
// vocabulary has no embedding for.
void require_in_vocabulary(std::string_view what, std::span<const int32_t> tokens,
                           int64_t vocabulary_size);

}  // namespace zinc::text
