// train/config/fields.h: reading the keys of one block of a configuration.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "train/json/value.h"

namespace zinc::train {

// What is wrong with a file, and what its user should be told; shared by all blocks.
class Findings {
 public:
  void problem(const json::Value& at, std::string_view message);
  void problem(std::string message) { problems_.push_back(std::move(message)); }
  void notice(std::string message) { notices_.push_back(std::move(message)); }
  // ConfigError with all problems, where there are any.
  void throw_problems() const;
  std::vector<std::string> take_notices() { return std::move(notices_); }

 private:
  std::vector<std::string> problems_;
  std::vector<std::string> notices_;
};

// One object of the file. Every key that is read is asked for by name; finish() sorts the others by
// the table of config_keys(). "auto" counts as absent. A value of the wrong kind or outside its
// range is a problem and counts as absent.
class Fields {
 public:
  // `object` null: every key is absent. `path` of the block: "zero_optimization", empty: the root.
  Fields(const json::Value* object, std::string path, Findings& findings);

  // The value, unless it is absent, null or "auto".
  const json::Value* find(std::string_view key);
  bool is_auto(std::string_view key) const;
  bool has(std::string_view key) const;  // also "auto"

  std::optional<bool> boolean(std::string_view key);
  std::optional<int64_t> integer(std::string_view key, int64_t min,
                                 int64_t max = std::numeric_limits<int64_t>::max());
  std::optional<double> number(std::string_view key, double min,
                               double max = std::numeric_limits<double>::max());
  std::optional<std::string> text(std::string_view key);
  // One of `choices`, by index.
  std::optional<size_t> choice(std::string_view key, const std::vector<std::string>& choices);
  // "2GiB", "512MiB", "1e9" or a number of bytes.
  std::optional<int64_t> bytes(std::string_view key);
  // A nested block; null where it is absent.
  const json::Value* block(std::string_view key);

  // An old name: its value, with a notice that names the new one.
  const json::Value* deprecated(std::string_view key, std::string_view replacement);

  void finish();

 private:
  std::string path_of(std::string_view key) const;
  void sort_unknown(const json::Member& member);

  const json::Value* object_;
  std::string path_;
  Findings& findings_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace zinc::train
