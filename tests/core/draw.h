// tests/core/draw.h: values drawn by a seed, for configurations that nobody chose.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/philox.h"

namespace zinc::test {

// A value after the other of one seed, each noted by its name.
class Draw {
 public:
  explicit Draw(uint64_t seed) : key_(make_random_key(seed, Purpose::test, 0, 0, 0)) {}

  template <class T>
  T one_of(std::string_view name, std::initializer_list<T> values) {
    const T value = values.begin()[key_.bits(next_++) % values.size()];
    note(name, value);
    return value;
  }
  bool flip(std::string_view name) { return one_of(name, {false, true}); }
  // Draws an index into a list whose members have names.
  template <class T>
  T named(std::string_view name, std::initializer_list<T> values) {
    const T value = values.begin()[key_.bits(next_++) % values.size()];
    words_ += fmt::format(" {}={}", name, name_of(value));
    return value;
  }
  const std::string& words() const { return words_; }

 private:
  template <class T>
  void note(std::string_view name, const T& value) {
    words_ += fmt::format(" {}={}", name, value);
  }

  RandomKey key_;
  uint64_t next_ = 0;
  std::string words_;
};

}  // namespace zinc::test
