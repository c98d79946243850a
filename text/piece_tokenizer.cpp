#include "text/piece_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/error.h"
#include "files/utf8.h"

namespace zinc::text {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";    // U+2581
constexpr std::string_view kUnknownText = " \xE2\x81\x87 ";  // U+2047, as sentencepiece shows it

}  // namespace

PieceTokenizer::PieceTokenizer(Parts parts)
    : parts_(std::move(parts)),
      added_(std::exchange(parts_.added_tokens, {}), Normalizer()),
      vocabulary_size_(parts_.model->size()) {
  for (const AddedToken& token : added_.tokens()) {
    vocabulary_size_ = std::max<int64_t>(vocabulary_size_, int64_t{token.id} + 1);
  }
  for (int32_t piece = 0; piece < parts_.model->size(); ++piece) {
    if (parts_.model->text(piece) != kSpaceSymbol) continue;
    const std::array<int32_t, 2> spaces{piece, piece};
    drops_all_spaces_ = parts_.model->decode(spaces).empty();
  }
}

std::vector<int32_t> PieceTokenizer::encode(std::string_view text) const {
  const std::string repaired =
      files::first_invalid_utf8(text) ? files::replace_invalid_utf8(text) : std::string();
  std::vector<int32_t> ids;
  added_.split(repaired.empty() ? text : repaired, false, [&](TextPart part) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      parts_.model->encode(part.text, ids);
    }
  });
  return ids;
}

std::vector<int32_t> PieceTokenizer::encode_with_specials(std::string_view text) const {
  return parts_.post_processor.apply(encode(text));
}

bool PieceTokenizer::append_bytes(int32_t token, bool first, std::string& out) const {
  if (!has(token)) return first;
  if (const AddedToken* added = added_.find(token)) {
    out += added->content;
    return true;  // the pieces behind it are decoded as a text
  }
  if (token >= parts_.model->size()) return first;  // no token has this id
  std::string_view text = parts_.model->text(token);
  switch (parts_.model->kind(token)) {
    case PieceKind::control:
      return first;
    case PieceKind::unknown:
      out += kUnknownText;
      return false;
    case PieceKind::byte: {  // <0x41>
      int value = 0;
      std::from_chars(text.data() + 3, text.data() + text.size() - 1, value, 16);
      out += static_cast<char>(value);
      return false;
    }
    case PieceKind::text:
      break;
  }
  const bool drops = first && text.starts_with(kSpaceSymbol);
  if (drops) text.remove_prefix(kSpaceSymbol.size());
  const bool is_next_first = drops && text.empty() && drops_all_spaces_;
  for (size_t at = text.find(kSpaceSymbol); at != text.npos; at = text.find(kSpaceSymbol)) {
    out += text.substr(0, at);
    out += ' ';
    text.remove_prefix(at + kSpaceSymbol.size());
  }
  out += text;
  return is_next_first;
}

std::string PieceTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (size_t at = 0; at < tokens.size();) {
    const auto is_piece = [&](int32_t token) {
      return token >= 0 && token < parts_.model->size() && added_.find(token) == nullptr;
    };
    size_t end = at;
    while (end < tokens.size() && is_piece(tokens[end])) ++end;
    if (end > at) {
      text += parts_.model->decode(tokens.subspan(at, end - at));
      at = end;
    } else {
      append_bytes(tokens[at++], false, text);
    }
  }
  return files::replace_invalid_utf8(text);
}

}  // namespace zinc::text
