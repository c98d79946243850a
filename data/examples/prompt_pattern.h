// data/examples/prompt_pattern.h: how a prompt and its answer become one text.
#pragma once

#include <string>
#include <string_view>

namespace zinc::data {

struct PromptPattern {
  std::string before{};        // text before the prompt
  std::string between = "\n";  // text between the prompt and the answer
  std::string behind{};        // text behind the answer

  friend bool operator==(const PromptPattern&, const PromptPattern&) = default;
};

// "{}\n{}": text with two places, for the prompt and for the answer. \n, \t and \\ stand for an end
// of line, a tab and a backslash, {{ and }} for a bracket. ConfigError for any other text.
PromptPattern parse_pattern_of_prompt(std::string_view text);

}  // namespace zinc::data
