#include "train/text/tokenizer.h"

#include <array>

#include "core/error.h"

namespace zinc::train {

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string bytes;
  for (const int32_t token : tokens) bytes += bytes_of(token);
  return replace_invalid_utf8(bytes);
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string_view ByteTokenizer::bytes_of(int32_t token) const {
  static constexpr auto kBytes = [] {
    std::array<char, 256> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
    return bytes;
  }();
  require_in_vocabulary("decode", std::span(&token, 1), 256);
  return {kBytes.data() + token, 1};
}

void require_in_vocabulary(std::string_view what, std::span<const int32_t> tokens,
                           int64_t vocabulary_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary_size) continue;
    throw DataError(concat(what, ": token ", tokens[i], " at position ", i,
                           " is outside the vocabulary of ", vocabulary_size, " tokens"));
  }
}

}  // namespace zinc::train
