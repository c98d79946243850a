#include "train/text/tokenizer.h"

#include <utility>

#include "core/error.h"

namespace zinc::train {

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string bytes;
  for (size_t i = 0; i < tokens.size(); ++i) append_bytes(tokens[i], i == 0, bytes);
  return replace_invalid_utf8(bytes);
}

std::string StreamingDecoder::push(int32_t token) {
  std::string bytes;
  tokenizer_->append_bytes(token, std::exchange(first_, false), bytes);
  return stream_.push(bytes);
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

void ByteTokenizer::append_bytes(int32_t token, bool, std::string& out) const {
  if (has(token)) out += static_cast<char>(token);
}

void require_in_vocabulary(std::string_view what, std::span<const int32_t> tokens,
                           int64_t vocabulary_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary_size) continue;
    throw DataError(str(what, ": token ", tokens[i], " at position ", i,
                        " is outside the vocabulary of ", vocabulary_size, " tokens"));
  }
}

}  // namespace zinc::train
