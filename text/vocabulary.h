// text/vocabulary.h: tokens by number and by text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "files/json/value.h"

namespace zinc::text {

// Upper bound of token ids in a file, so that a number in a file cannot ask for all memory.
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 22;

class Vocabulary {
 public:
  // {"token": id, ...}; DataError for an id that is used twice or is out of range.
  static Vocabulary parse(const files::json::Value& object);

  // `id` in [0, kMaxVocabulary); false where the text or the id is taken.
  bool add(std::string text, int32_t id);
  std::optional<int32_t> find(std::string_view text) const;
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < present_.size() &&
           present_[static_cast<size_t>(id)];
  }
  const std::string& text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }  // has(id)
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }  // the largest id + 1
  int64_t num_tokens() const { return static_cast<int64_t>(ids_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<std::string> texts_;
  std::vector<bool> present_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace zinc::text
