#include "text/tokenizer.h"

#include "core/error.h"

namespace zinc::text {

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string bytes;
  bool first = true;
  for (const int32_t token : tokens) first = append_bytes(token, first, bytes);
  return files::replace_invalid_utf8(bytes);
}

std::string StreamingDecoder::push(int32_t token) {
  std::string bytes;
  first_ = tokenizer_->append_bytes(token, first_, bytes);
  return stream_.push(bytes);
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

bool ByteTokenizer::append_bytes(int32_t token, bool, std::string& out) const {
  if (has(token)) out += static_cast<char>(token);
  return false;
}

void require_in_vocabulary(std::string_view what, std::span<const int32_t> tokens,
                           int64_t vocabulary_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary_size) continue;
    throw DataError(str(what, ": token ", tokens[i], " at position ", i,
                        " is outside the vocabulary of ", vocabulary_size, " tokens"));
  }
}

}  // namespace zinc::text
