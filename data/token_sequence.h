// data/token_sequence.h: several token files, or parts of files, one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/token_file.h"

namespace zinc::data {

// A cheap value; the files are shared. Tokens of different parts never share a window.
class TokenSequence {
 public:
  struct FileTokens {
    std::shared_ptr<const TokenFile> file;
    int64_t begin = 0;  // first token of the file that belongs to the sequence
    int64_t end = 0;
    int64_t num_tokens() const { return end - begin; }
  };

  TokenSequence() = default;
  // Opens all files. Throws a DataError if there is none, if text and token files are mixed (their
  // vocabularies differ), or as TokenFile::open() does.
  static TokenSequence open(const std::vector<std::string>& paths,
                            TokenFormat format = TokenFormat::automatic,
                            const text::Tokenizer* tokenizer = nullptr);

  const std::vector<FileTokens>& parts() const { return parts_; }
  int64_t num_tokens() const;
  // See TokenFile::vocabulary_size().
  int64_t vocabulary_size() const;
  bool is_text() const { return vocabulary_size() > 0; }

  // Cuts off the last round(fraction * num_tokens()) tokens: returns {the rest, the tail}. The cut
  // may go through a file. 0 < fraction < 1. Throws a DataError if a side would get no token.
  std::pair<TokenSequence, TokenSequence> split_tail(double fraction) const;

  // "bible.txt (text, 4404445 tokens)", "12 files (llm.c, 9000000 tokens)".
  std::string describe() const;

 private:
  std::vector<FileTokens> parts_;
};

}  // namespace zinc::data
