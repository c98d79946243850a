#include "text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "text/json_parts.h"
#include "text/unicode/unicode.h"

namespace zinc::text {
namespace {

bool word_ends_at(std::string_view text, size_t end) {
  if (end == 0) return false;
  size_t at = character_before(text, end);
  return CharacterTable::get().is(next_character(text, at), kWordCharacter);
}

bool word_begins_at(std::string_view text, size_t at) {
  if (at >= text.size()) return false;
  return CharacterTable::get().is(next_character(text, at), kWordCharacter);
}

size_t before_spaces(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t begin = character_before(text, end);
    size_t at = begin;
    if (!CharacterTable::get().is(next_character(text, at), kSpace)) break;
    end = begin;
  }
  return end;
}

size_t behind_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!CharacterTable::get().is(next_character(text, next), kSpace)) break;
    at = next;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(std::move(tokens)) {
  // Special tokens come first: of two with the same text they count.
  std::stable_partition(tokens_.begin(), tokens_.end(), [](const auto& t) { return t.special; });
  for (size_t place = 0; place < tokens_.size(); ++place) {
    AddedToken& token = tokens_[place];
    token.shown = token.normalized ? normalizer.apply(token.content) : token.content;
    const auto id = static_cast<size_t>(token.id);
    if (id >= place_of_.size()) place_of_.resize(id + 1, -1);
    place_of_[id] = static_cast<int32_t>(place);
    add(token.normalized ? normalized_ : raw_, token.shown, place);
  }
}

void AddedTokens::add(Kind& kind, std::string_view content, size_t place) {
  if (content.empty()) return;
  const auto first = static_cast<unsigned char>(content[0]);
  kind.first_byte = kind.empty || kind.first_byte == first ? first : -1;
  kind.empty = false;
  kind.begins[first] = true;
  kind.trie.insert(content, static_cast<int32_t>(place));
}

std::vector<AddedToken> AddedTokens::parse(const files::json::Value* list,
                                           const Vocabulary& model) {
  std::vector<AddedToken> tokens;
  if (list == nullptr || list->is_null()) return tokens;
  std::vector<int64_t> ids;
  for (const files::json::Value& entry : list->as_array()) {
    require_known_keys(
        entry, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token{.id = static_cast<int32_t>(entry.at("id").as_int64(0, kMaxVocabulary - 1)),
                     .content = entry.at("content").as_string(),
                     .single_word = flag(entry, "single_word", false),
                     .strip_left = flag(entry, "lstrip", false),
                     .strip_right = flag(entry, "rstrip", false),
                     .special = flag(entry, "special", false)};
    token.normalized = flag(entry, "normalized", !token.special);
    if (token.content.empty()) entry.at("content").fail("an added token must not be empty");
    const std::optional<int32_t> own = model.find(token.content);
    if (own && *own != token.id) {
      entry.at("id").fail(str("the model gives '", token.content, "' the id ", *own));
    }
    if (!own && model.has(token.id)) {
      entry.at("id").fail(str("is the id of '", model.text(token.id), "' in the model"));
    }
    ids.push_back(token.id);
    tokens.push_back(std::move(token));
  }
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
    list->fail(str("id ", *std::adjacent_find(ids.begin(), ids.end()), " is used twice"));
  }
  return tokens;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= place_of_.size()) return nullptr;
  const int32_t place = place_of_[static_cast<size_t>(id)];
  return place < 0 ? nullptr : &tokens_[static_cast<size_t>(place)];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = std::find_if(tokens_.begin(), tokens_.end(),
                                  [&](const AddedToken& t) { return t.content == content; });
  return found == tokens_.end() ? nullptr : &*found;
}

size_t AddedTokens::next_start(const Kind& kind, std::string_view text, size_t at) {
  if (kind.first_byte >= 0) {
    const void* found = std::memchr(text.data() + at, kind.first_byte, text.size() - at);
    return found == nullptr ? text.size()
                            : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  }
  while (at < text.size() && !kind.begins[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

void AddedTokens::split(std::string_view text, bool normalized,
                        FunctionRef<void(TextPart)> visit) const {
  const Kind& kind = normalized ? normalized_ : raw_;
  size_t done = 0;
  size_t at = 0;
  while (!kind.empty && at < text.size()) {
    at = next_start(kind, text, at);
    if (at >= text.size()) break;
    size_t length = 0;
    int32_t place = -1;
    kind.trie.for_each_prefix(text.substr(at), [&](size_t bytes, int32_t found) {
      length = bytes;
      place = found;
    });
    if (place < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(place)];
    size_t begin = at, end = at + length;
    at = end;
    if (token.single_word && (word_ends_at(text, begin) || word_begins_at(text, end))) continue;
    if (token.strip_left) begin = std::max(before_spaces(text, begin), done);
    if (token.strip_right) end = behind_spaces(text, end);
    // A token of spaces may lie in those that the one before took. If it strips them too, there is
    // nothing left of it. Otherwise it counts, and what follows it is text again, though taken: so
    // it is in Hugging Face's library.
    if (begin > end) continue;
    if (begin > done) visit({text.substr(done, begin - done), -1});
    if (begin < end) visit({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) visit({text.substr(done), -1});
}

}  // namespace zinc::text
