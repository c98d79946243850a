// train/config/key_rules.h: keys of a file that contradict each other as they are read, because
// they say one setting twice, or two that are one choice. Settings that exclude each other whatever
// gave them are rows of zero/config_rules.h. Not in either table: flags of the command line against
// keys (settle.h), and the three numbers of a batch, any two of which give the third.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "train/config/settle.h"
#include "zero/config_rules.h"

namespace zinc::train {

// Texts may hold {first} and {second}: the file's values of the first two keys.
struct KeyRule {
  std::array<std::string_view, 3> keys{};
  bool (*is_broken)(const KeyRule& rule, const Reading& reading) = nullptr;
  std::string_view what;
  std::string_view why;
  std::string_view cure;

  // "<what>: <why>; <cure>"
  std::string message(const Reading& reading) const;
};

std::span<const KeyRule> key_rules();

// Reports the broken rows of key_rules(), each with the place of its first key.
void report_key_rules(const Reading& reading);
// Reports the rows of zero::config_rules() that the configuration breaks, each with the place of
// the first of its keys that the file gives.
void report_config_rules(const Reading& reading);

// Both tables for people, in Markdown: a part of docs/config.md.
std::string config_rules_markdown();

}  // namespace zinc::train
