#include "data/examples/prompt_pattern.h"

#include <array>

#include "core/error.h"

namespace zinc::data {

PromptPattern parse_pattern_of_prompt(std::string_view text) {
  std::array<std::string, 3> parts;
  size_t part = 0;
  const auto fail = [&](std::string_view why) {
    throw ConfigError(str("--pattern '", text, "': ", why, R"(, as in "{}\n{}")"));
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const char next = at + 1 < text.size() ? text[at + 1] : '\0';
    if (c == '\\') {
      if (next != 'n' && next != 't' && next != '\\') fail("a backslash stands before n, t or \\");
      parts[part] += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      ++at;
    } else if (c == '{' && next == '}') {
      if (++part == parts.size()) fail("there are more than two places {}");
      ++at;
    } else if (c == '{' || c == '}') {
      if (next != c) fail("a bracket that is text is written twice");
      parts[part] += c;
      ++at;
    } else {
      parts[part] += c;
    }
  }
  if (part != 2) fail("there are two places {}, of the prompt and of the answer");
  return {.before = parts[0], .between = parts[1], .behind = parts[2]};
}

}  // namespace zinc::data
