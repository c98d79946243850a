// text/json_parts.h: helpers that the readers of the parts of a tokenizer.json share.
//
// Every part is an object with a "type". Nothing in it is skipped: a key that zinc does not know is
// refused by name, with its place.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "files/json/value.h"
#include "text/pattern.h"

namespace zinc::text {

// DataError at the first key of `part` that is not in `known`.
void require_known_keys(const files::json::Value& part,
                        std::initializer_list<std::string_view> known);

// The value of a key, or `otherwise` where it is absent or null.
bool flag(const files::json::Value& part, std::string_view key, bool otherwise);
std::string text_or(const files::json::Value& part, std::string_view key,
                    std::string_view otherwise);

// {"String": "..."} or {"Regex": "..."}.
std::unique_ptr<Pattern> parse_pattern(const files::json::Value& pattern);

// DataError "<what> 'X' is not supported; zinc has A, B".
[[noreturn]] void refuse_type(const files::json::Value& type, std::string_view what,
                              std::string_view supported);

}  // namespace zinc::text
