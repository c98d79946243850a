#include "hub/json_fields.h"

#include <algorithm>

#include "core/edit_distance.h"
#include "core/error.h"

namespace zinc::hub {

const files::json::Value* JsonFields::find(std::initializer_list<std::string_view> spellings) {
  const files::json::Value* found = nullptr;
  for (const std::string_view spelling : spellings) {
    asked_.emplace_back(spelling);
    const files::json::Value* value = object_->find(spelling);
    if (found == nullptr && value != nullptr && !value->is_null()) found = value;
  }
  return found;
}

int64_t JsonFields::integer(std::initializer_list<std::string_view> spellings, int64_t fallback,
                            int64_t largest) {
  const files::json::Value* value = find(spellings);
  return value == nullptr ? fallback : value->as_int64(-largest, largest);
}

int64_t JsonFields::integer_or_null(std::string_view key, int64_t fallback, int64_t none,
                                    int64_t largest) {
  const files::json::Value* value = object_->find(key);
  return integer(key, value == nullptr ? fallback : none, largest);
}

double JsonFields::number(std::string_view key, double fallback) {
  const files::json::Value* value = find(key);
  return value == nullptr ? fallback : value->as_double();
}

bool JsonFields::boolean(std::string_view key, bool fallback) {
  const files::json::Value* value = find(key);
  return value == nullptr ? fallback : value->as_bool();
}

std::string JsonFields::text(std::string_view key, std::string_view fallback) {
  const files::json::Value* value = find(key);
  return value == nullptr ? std::string(fallback) : value->as_string();
}

std::vector<int64_t> JsonFields::tokens(std::string_view key, int64_t fallback) {
  asked_.emplace_back(key);
  const files::json::Value* value = object_->find(key);
  if (value == nullptr) return fallback < 0 ? std::vector<int64_t>{} : std::vector{fallback};
  if (value->is_null()) return {};
  if (!value->is_array()) return {value->as_int64(0, kLargest)};
  std::vector<int64_t> tokens;
  for (const files::json::Value& token : value->as_array())
    tokens.push_back(token.as_int64(0, kLargest));
  return tokens;
}

void JsonFields::require_value(std::string_view key, bool expected, std::string_view reason) {
  const files::json::Value* value = find(key);
  if (value != nullptr && value->as_bool() != expected) value->fail(reason);
}

void JsonFields::refuse_misspelt() const {
  std::vector<std::string> absent;
  for (const std::string& key : asked_) {
    if (object_->find(key) == nullptr) absent.push_back(key);
  }
  for (const files::json::Member& member : object_->as_object()) {
    if (std::find(asked_.begin(), asked_.end(), member.key) != asked_.end()) continue;
    const std::string nearest = nearest_name(member.key, absent);
    if (!nearest.empty() && edit_distance(member.key, nearest) <= 2) {
      member.value.fail(str("unknown key; did you mean \"", nearest, "\"?"));
    }
  }
}

files::json::Value token_ids(const std::vector<int64_t>& tokens) {
  if (tokens.empty()) return nullptr;
  if (tokens.size() == 1) return tokens.front();
  files::json::Array list;
  for (const int64_t token : tokens) list.emplace_back(token);
  return list;
}

}  // namespace zinc::hub
