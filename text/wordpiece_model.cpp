#include "text/wordpiece_model.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/json_parts.h"

namespace zinc::text {

WordPieceModel::WordPieceModel(Vocabulary vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  const std::optional<int32_t> unknown = vocabulary_.find(options_.unknown);
  if (!unknown) {
    throw DataError(str("the unknown token '", options_.unknown, "' is not in the vocabulary"));
  }
  unknown_ = *unknown;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.has(id)) continue;
    const std::string_view text = vocabulary_.text(id);
    first_.insert(text, id);
    if (text.starts_with(options_.prefix))
      following_.insert(text.substr(options_.prefix.size()), id);
  }
}

std::unique_ptr<TokenModel> WordPieceModel::parse(const files::json::Value& part) {
  require_known_keys(part, {"type", "unk_token", "continuing_subword_prefix",
                            "max_input_chars_per_word", "vocab"});
  WordPieceOptions options{.unknown = text_or(part, "unk_token", "[UNK]"),
                           .prefix = text_or(part, "continuing_subword_prefix", "##")};
  if (const files::json::Value* longest = part.find("max_input_chars_per_word")) {
    options.max_characters = longest->as_int64(0);
  }
  const files::json::Value& vocabulary = part.at("vocab");
  try {
    return std::make_unique<WordPieceModel>(Vocabulary::parse(vocabulary), std::move(options));
  } catch (const DataError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) throw;  // has a place
    part.fail(error.what());
  }
}

void WordPieceModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const auto characters =
      std::count_if(piece.begin(), piece.end(), [](char c) { return (c & 0xC0) != 0x80; });
  const size_t before = ids.size();
  bool possible = characters <= options_.max_characters;
  for (size_t at = 0; possible && at < piece.size();) {
    size_t longest = 0;
    int32_t best = unknown_;
    (at == 0 ? first_ : following_)
        .for_each_prefix(piece.substr(at), [&](size_t length, int32_t id) {
          const bool cuts = at + length < piece.size() && (piece[at + length] & 0xC0) == 0x80;
          if (cuts) return;  // inside a character
          longest = length;
          best = id;
        });
    possible = longest > 0;
    ids.push_back(best);
    at += longest;
  }
  if (possible) return;
  ids.resize(before);
  ids.push_back(unknown_);
}

}  // namespace zinc::text
