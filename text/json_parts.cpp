#include "text/json_parts.h"

#include <algorithm>

#include "core/error.h"

namespace zinc::text {

void require_known_keys(const files::json::Value& part,
                        std::initializer_list<std::string_view> known) {
  for (const files::json::Member& member : part.as_object()) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    member.value.fail(str("'", member.key, "' is not supported here"));
  }
}

bool flag(const files::json::Value& part, std::string_view key, bool otherwise) {
  const files::json::Value* value = part.find(key);
  return value == nullptr || value->is_null() ? otherwise : value->as_bool();
}

std::string text_or(const files::json::Value& part, std::string_view key,
                    std::string_view otherwise) {
  const files::json::Value* value = part.find(key);
  return value == nullptr || value->is_null() ? std::string(otherwise) : value->as_string();
}

std::unique_ptr<Pattern> parse_pattern(const files::json::Value& pattern) {
  require_known_keys(pattern, {"String", "Regex"});
  if (pattern.size() != 1) pattern.fail("a pattern is one of \"String\" and \"Regex\"");
  if (const files::json::Value* text = pattern.find("String")) {
    if (text->as_string().empty()) text->fail("a pattern must not be empty");
    return make_literal_pattern(text->as_string());
  }
  const files::json::Value& regex = pattern.at("Regex");
  try {
    return make_pattern(regex.as_string());
  } catch (const DataError& error) {
    regex.fail(error.what());
  }
}

void refuse_type(const files::json::Value& type, std::string_view what,
                 std::string_view supported) {
  type.fail(str("the ", what, " '", type.as_string(), "' is not supported; zinc has ", supported));
}

}  // namespace zinc::text
