#include "text/json_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "files/utf8.h"
#include "text/byte_level.h"
#include "text/json_parts.h"
#include "text/unicode/unicode.h"

namespace zinc::text {

// One call of encode: its output, and the cache that it has for the time.
class JsonTokenizer::Call {
 public:
  Call(const JsonTokenizer& tokenizer, std::vector<int32_t>& ids)
      : tokenizer_(tokenizer), ids_(ids), cache_(tokenizer.caches_.take()) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { tokenizer_.caches_.give_back(std::move(cache_)); }

  void encode(std::string_view text) {
    tokenizer_.added_.split(text, false, [&](TextPart part) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
        return;
      }
      size_t of_first = 0;
      if (part.text.data() == text.data()) next_character(text, of_first);
      const Normalizer& normalizer = tokenizer_.parts_.normalizer;
      if (normalizer.changes_nothing()) return encode_normalized(part.text, of_first);
      const std::string normalized = normalizer.apply(part.text, of_first);
      encode_normalized(normalized, of_first);
    });
  }

 private:
  void encode_normalized(std::string_view text, size_t of_first) {
    tokenizer_.added_.split(text, true, [&](TextPart part) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
        return;
      }
      const auto begin = static_cast<size_t>(part.text.data() - text.data());
      const PreToken piece{.text = part.text, .of_first = of_first > begin ? of_first - begin : 0};
      tokenizer_.parts_.pre_tokenizer.run(piece, [&](PreToken p) { encode_piece(p.text); });
    });
  }
  void encode_piece(std::string_view piece) {
    if (piece.size() > PieceCache::kMaxPieceBytes) {
      return tokenizer_.parts_.model->encode(piece, ids_);
    }
    const PieceCache::Key key = PieceCache::key_of(piece);
    if (cache_->append_to(ids_, key)) return;
    const size_t before = ids_.size();
    tokenizer_.parts_.model->encode(piece, ids_);
    cache_->keep(key, std::span(ids_).subspan(before));
  }

  const JsonTokenizer& tokenizer_;
  std::vector<int32_t>& ids_;
  std::unique_ptr<PieceCache> cache_;
};

JsonTokenizer::JsonTokenizer(Parts parts) : parts_(std::move(parts)) {
  added_ = AddedTokens(std::exchange(parts_.added_tokens, {}), parts_.normalizer);
  vocabulary_size_ = parts_.model->vocabulary().size();
  for (const AddedToken& token : added_.tokens()) {
    vocabulary_size_ = std::max<int64_t>(vocabulary_size_, int64_t{token.id} + 1);
  }
  if (parts_.end_of_text) end_of_text_ = find(*parts_.end_of_text);
  if (parts_.mask_token) mask_token_ = find(*parts_.mask_token);
  if (!parts_.decoder.is_byte_level()) return;
  bytes_.resize(static_cast<size_t>(vocabulary_size_));
  for (int32_t id = 0; id < vocabulary_size_; ++id) {
    const std::string& text = text_of(id);
    // An added token is text; only the model's tokens are written in characters for bytes.
    bytes_[static_cast<size_t>(id)] =
        added_.find(id) != nullptr ? text : parts_.decoder.bytes_of(text, false);
  }
}

std::unique_ptr<JsonTokenizer> JsonTokenizer::parse(const files::json::Value& root,
                                                    std::string name,
                                                    std::optional<std::string> end_of_text,
                                                    std::optional<std::string> mask_token) {
  require_known_keys(root, {"version", "truncation", "padding", "added_tokens", "normalizer",
                            "pre_tokenizer", "post_processor", "decoder", "model"});
  if (const files::json::Value* version = root.find("version");
      version != nullptr && !version->is_string("1.0")) {
    version->fail("only version \"1.0\" is known");
  }
  Parts parts{.name = std::move(name),
              .normalizer = Normalizer::parse(root.find("normalizer")),
              .pre_tokenizer = PreTokenizer::parse(root.find("pre_tokenizer"))};
  parts.model = parse_token_model(root.at("model"), parts.pre_tokenizer.gives_bytes());
  parts.added_tokens = AddedTokens::parse(root.find("added_tokens"), parts.model->vocabulary());
  parts.post_processor = PostProcessor::parse(root.find("post_processor"));
  parts.decoder = TokenDecoder::parse(root.find("decoder"));
  parts.end_of_text = std::move(end_of_text);
  parts.mask_token = std::move(mask_token);
  return std::make_unique<JsonTokenizer>(std::move(parts));
}

std::vector<int32_t> JsonTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  Call call(*this, ids);
  if (files::first_invalid_utf8(text)) {
    call.encode(files::replace_invalid_utf8(text));
  } else {
    call.encode(text);
  }
  return ids;
}

std::vector<int32_t> JsonTokenizer::encode_with_specials(std::string_view text) const {
  return parts_.post_processor.apply(encode(text));
}

// Empty for an id that stands for no token.
const std::string& JsonTokenizer::text_of(int32_t token) const {
  static const std::string kNothing;
  if (const AddedToken* added = added_.find(token)) return added->shown;
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  return vocabulary.has(token) ? vocabulary.text(token) : kNothing;
}

std::optional<int32_t> JsonTokenizer::find(std::string_view token) const {
  if (const AddedToken* added = added_.find(token)) return added->id;
  return parts_.model->vocabulary().find(token);
}

bool JsonTokenizer::is_special(int32_t token) const {
  const AddedToken* added = added_.find(token);
  return added != nullptr && added->special;
}

bool JsonTokenizer::append_bytes(int32_t token, bool first, std::string& out) const {
  if (!has(token)) return first;
  out += bytes_.empty() ? parts_.decoder.bytes_of(text_of(token), first)
                        : bytes_[static_cast<size_t>(token)];
  return false;
}

std::string JsonTokenizer::decode(std::span<const int32_t> tokens) const {
  if (!bytes_.empty()) return Tokenizer::decode(tokens);
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const int32_t token : tokens) {
    if (!has(token)) continue;
    if (const std::string& text = text_of(token); !text.empty()) texts.push_back(text);
  }
  return parts_.decoder.decode(std::move(texts));
}

}  // namespace zinc::text
