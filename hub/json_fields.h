// hub/json_fields.h: reading the keys of one JSON object, each with its default.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "files/json/value.h"

namespace zinc::hub {

// A key that is absent or null has its default. Wrong types are DataErrors with their place.
class JsonFields {
 public:
  explicit JsonFields(const files::json::Value& object) : object_(&object) { object.as_object(); }

  // Null where the key is absent or null. With several spellings, the first that is present.
  const files::json::Value* find(std::string_view key) { return find({key}); }
  const files::json::Value* find(std::initializer_list<std::string_view> spellings);

  // Limits of sizes: a layer takes time to build, and products of sizes must fit int64.
  static constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  static constexpr int64_t kMostLayers = 16'384;
  static constexpr int64_t kWidest = 1'048'576;           // hidden size, heads
  static constexpr int64_t kWidestInside = 16 * kWidest;  // for an MLP

  // At most `largest`.
  int64_t integer(std::initializer_list<std::string_view> spellings, int64_t fallback,
                  int64_t largest = kLargest);
  int64_t integer(std::string_view key, int64_t fallback, int64_t largest = kLargest) {
    return integer({key}, fallback, largest);
  }
  // `fallback` where the key is absent, `none` where it is null.
  int64_t integer_or_null(std::string_view key, int64_t fallback, int64_t none,
                          int64_t largest = kLargest);
  double number(std::string_view key, double fallback);
  bool boolean(std::string_view key, bool fallback);
  std::string text(std::string_view key, std::string_view fallback);
  // A token id, a list of them, or null: none. `fallback` where the key is absent.
  std::vector<int64_t> tokens(std::string_view key, int64_t fallback);
  // DataError unless the key is absent, null or `expected`.
  void require_value(std::string_view key, bool expected, std::string_view reason);

  // DataError for a key that was never asked for but is nearly spelt like one that was asked for
  // and is absent.
  void refuse_misspelt() const;

 private:
  const files::json::Value* object_;
  std::vector<std::string> asked_;
};

// eos_token_id as transformers writes it: null, a number, or a list.
files::json::Value token_ids(const std::vector<int64_t>& tokens);

}  // namespace zinc::hub
