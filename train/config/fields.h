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

#include "core/error.h"
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

// Of elements, bytes, steps: more than any machine has, and small enough for sums and products with
// sizes of elements to stay within int64.
inline constexpr int64_t kLargestCount = 1'000'000'000'000'000;

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
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max = kLargestCount);
  std::optional<uint64_t> unsigned_integer(std::string_view key);  // all 64 bits
  std::optional<double> number(std::string_view key, double min,
                               double max = std::numeric_limits<double>::max());
  // The same, also of a number in quotes.
  std::optional<double> number_or_text(std::string_view key, double min);
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

// The file's value where it is fixed, else the flag's; both, and different, is a problem.
template <class T>
std::optional<T> settle(const std::optional<T>& file, const std::optional<T>& flag,
                        std::string_view key, std::string_view option, Findings& findings) {
  if (file && flag && *file != *flag) {
    findings.problem(concat(option, " ", *flag, " contradicts ", key, " ", *file,
                            " of the file; change one of them, or set the key to \"auto\""));
  }
  return file ? file : flag;
}

std::string lower_case(std::string text);

}  // namespace zinc::train
