// data/token_file.h: one file as a sequence of tokens, memory-mapped.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "files/input_file.h"
#include "text/tokenizer.h"

namespace zinc::data {

// How a file holds tokens.
enum class TokenFormat : uint8_t {
  // Decided by the rules of TokenFile::open.
  automatic,
  // UTF-8 text: the tokens of a tokenizer, kept in memory; without one a token per byte, vocabulary
  // 256. The whole file is checked at opening.
  text,
  // llm.c: 256 little-endian int32: magic, version, number of tokens, zeros; then the tokens. Magic
  // 20240520, version 1: uint16. Magic 20240801, version 7: uint32 (Llama 3).
  llmc,
  // nanoGPT: nothing but little-endian uint16.
  nanogpt,
};
std::string_view name_of(TokenFormat format);

// All checks of the file as a whole are made when it is opened. Every failure is a DataError with
// file and place. Several threads may read.
class TokenFile {
 public:
  // With `automatic`:
  // - a name ending in ".bin" is llm.c if the first four bytes are one of its magic numbers,
  //   otherwise nanoGPT
  // - any other name is text
  //
  // A file with a magic number of llm.c that is no token file (evaluation set, weights, tokenizer),
  // or whose header is wrong, is an error and never read as something else. `tokenizer` may be
  // null.
  static TokenFile open(const std::string& path, TokenFormat format = TokenFormat::automatic,
                        const text::Tokenizer* tokenizer = nullptr);

  const std::string& path() const { return map_.path(); }
  TokenFormat format() const { return format_; }
  int64_t num_tokens() const { return num_tokens_; }  // at least 1
  // The tokenizer's vocabulary for text, 256 without a tokenizer; 0 if the file does not say.
  int64_t vocabulary_size() const { return vocabulary_size_; }
  // Appends tokens [begin, end). A token of `vocabulary_size` or more (0: one that does not fit
  // int32) is a DataError with its byte offset.
  void append_to(std::vector<int32_t>& out, int64_t begin, int64_t end,
                 int64_t vocabulary_size) const;

 private:
  TokenFile(files::MappedFile map, TokenFormat format, int64_t data_begin, int bytes_per_token);

  files::MappedFile map_;
  TokenFormat format_;
  int64_t data_begin_;  // byte offset of the first token
  int bytes_per_token_;
  int64_t num_tokens_;
  int64_t vocabulary_size_;
  std::vector<int32_t> encoded_;  // the tokens, where a tokenizer made them
};

}  // namespace zinc::data
