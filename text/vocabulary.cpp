#include "text/vocabulary.h"

#include "core/error.h"

namespace zinc::text {

bool Vocabulary::add(std::string text, int32_t id) {
  if (has(id)) return false;
  if (!ids_.emplace(text, id).second) return false;
  const auto i = static_cast<size_t>(id);
  if (i >= texts_.size()) {
    texts_.resize(i + 1);
    present_.resize(i + 1, false);
  }
  texts_[i] = std::move(text);
  present_[i] = true;
  return true;
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

Vocabulary Vocabulary::parse(const files::json::Value& object) {
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(object.as_object().size());
  for (const files::json::Member& member : object.as_object()) {
    const int64_t id = member.value.as_int64(0, kMaxVocabulary - 1);
    if (!vocabulary.add(member.key, static_cast<int32_t>(id))) {
      member.value.fail(str("token id ", id, " is used twice"));
    }
  }
  return vocabulary;
}

}  // namespace zinc::text
