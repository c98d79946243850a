// text/scores/characters.h: texts character by character, as the scores need them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zinc::text {

// for (std::string_view c : CharactersOf(text)): each well-formed character of UTF-8, and each byte
// that belongs to none.
class CharactersOf {
 public:
  explicit CharactersOf(std::string_view text) : text_(text) {}

  class Iterator {
   public:
    explicit Iterator(std::string_view rest) : rest_(rest) {}
    std::string_view operator*() const { return rest_.substr(0, length()); }
    Iterator& operator++() {
      rest_.remove_prefix(length());
      return *this;
    }
    bool operator!=(const Iterator& other) const { return rest_.size() != other.rest_.size(); }

   private:
    size_t length() const;
    std::string_view rest_;
  };
  Iterator begin() const { return Iterator(text_); }
  Iterator end() const { return Iterator({}); }

 private:
  std::string_view text_;
};

// The code point of a well-formed character.
uint32_t code_point_of(std::string_view character);
// Python's str.isspace().
bool is_white_space(std::string_view character);
// The ASCII letter or digit that is the character's lower case; else empty. Two characters beyond
// ASCII have one: the Kelvin sign, and I with a dot.
std::string ascii_of_lower_case(std::string_view character);

}  // namespace zinc::text
