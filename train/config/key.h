// train/config/key.h: the table of all configuration keys.
//
// A row has everything that zinc knows about a key. Reading a file, checking its values, "auto",
// the resolved file, the ranks' fingerprint, `zinc config keys` and the table of docs/config.md
// walk the rows; rules over several keys are tables of their own (key_rules.h) and code
// (settle.h). row.h shows how a row is written.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/json/value.h"
#include "train/config/config.h"

namespace zinc::train {

enum class KeyClass : uint8_t {
  works,
  no_effect,   // accepted; the engine is so by design, or has no such part: one line says it
  warning,     // accepted; something that the user may miss does not happen
  refused,     // an error that names the reason, unless the value is its off value
  deprecated,  // accepted under its old name
};
std::string_view name_of(KeyClass key_class);  // "works", "no effect", ...

enum class KeyType : uint8_t {
  any,  // for refused keys
  boolean,
  integer,
  unsigned_integer,  // all 64 bits
  number,
  quoted_number,  // a number, also in quotes
  text,
  choice,    // one of Setting::choices
  name,      // the same, in upper or lower case
  dtype,     // "fp32", "fp16" or "bf16"
  bytes,     // a number, or as in "2GiB"
  pair,      // two numbers
  texts,     // a list
  integers,  // a list
  block,     // an object with its own keys
};
std::string_view name_of(KeyType type);  // "integer", "boolean", ...

// For numbers, both ends included. An integer without a largest value ends at kLargestCount.
struct Bounds {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool positive = false;  // 0 is not in it
  int64_t multiple_of = 1;
};

// For elements, bytes and steps: more than any machine has, and small enough that sums, and
// products with sizes of elements, stay within int64.
inline constexpr int64_t kLargestCount = 1'000'000'000'000'000;

// The member of a Config that a key sets.
struct Setting {
  KeyType type = KeyType::any;
  std::vector<std::string> choices{};  // for KeyType::choice and name
  // For KeyType::name: DeepSpeed's values that zinc lacks, and the alternative to each.
  std::vector<std::pair<std::string, std::string>> absent{};
  // The value in force; null: none.
  std::function<files::json::Value(const Config&, int64_t world_size)> get{};
  // `value` is one in which problem_with() found nothing, or what get() gave. Empty: settle.h sets
  // the member. Of a block: called before its keys are read, where the file has the block.
  std::function<void(Config&, const files::json::Value& value)> set{};
};

struct Key {
  std::string path;  // "zero_optimization.stage"
  KeyClass key_class = KeyClass::works;
  Setting setting{};  // for a key without effect: its type alone
  Bounds range{};
  std::string unit{};  // for a number
  std::string note{};  // its effect, or the reason why it has none
  // Empty, or the key that this is another name of; that key wins where both are given.
  std::string stands_for{};
  // The one value that loads with a refused key; null: an off value, see Note [Off values].
  files::json::Value accepted{};
  double off_up_to = 0.0;        // for numbers: values up to this one are off values
  bool false_is_absent = false;  // for a number that DeepSpeed's own default gives as false
  bool is_read_loosely = false;  // Note [Values in quotes]

  // Set where a Config{} has another value than a file without the key; null: the two are equal.
  files::json::Value default_value{};
  std::string default_note{};  // for a default that follows from other keys
  // The flag of the command line that gives the value; null where it is not given.
  std::string option{};
  std::function<files::json::Value(const Overrides&)> flag{};
  bool flag_yields = false;  // the file's value wins; otherwise the two may not differ
  // The value of "auto" without the flag; null: the default.
  std::string auto_note{};
  std::function<files::json::Value(const Config&, const Overrides&)> automatic{};
  // "auto" stays open when the file is read: Config::open.
  bool is_filled = false;

  // --- when the value counts
  // Empty: always. A value that does not count is Config{}'s, and not in the resolved file.
  std::function<bool(const Config&)> in_force{};
  std::string only_with{};       // in words, for the table; may be empty
  bool unknown_without = false;  // unknown if it is not in force

  std::string_view block() const;  // "zero_optimization"; empty: the root
  std::string_view name() const;   // "stage"
  bool is_block() const { return setting.type == KeyType::block; }
  bool counts(const Config& config) const { return !in_force || in_force(config); }
  // Null where there is none.
  files::json::Value default_json() const;
};

// All rows, in the order of the documentation; the rows of a block follow its own.
const std::vector<Key>& config_keys();
const Key* find_key(std::string_view path);  // null where there is none
// The keys of one block, in the table's order; "" for the root.
const std::vector<const Key*>& keys_of(std::string_view block);

// The reason why the key cannot have the value, as in "must be between 0 and 3, not 4"; empty if it
// can.
std::string problem_with(const Key& key, const files::json::Value& value);
// The values that it can have, as in "elements, at least 1".
std::string values_of(const Key& key);

// The table for people (of docs/config.md, in Markdown) and for programs.
std::string config_keys_markdown();
std::string config_keys_json();

}  // namespace zinc::train
