#include "train/config/config.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/edit_distance.h"
#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "train/config/findings.h"
#include "train/config/key.h"
#include "train/config/row.h"
#include "train/config/settle.h"

namespace zinc::train {
namespace {

// Note [Off values]
// A value that asks for nothing: false, null, 0, "", "auto", {} and {"enabled": false}. With it a
// key that is refused, or has no effect, loads without a word.
bool is_off(const files::json::Value& value) {
  if (value.is_null() || value.is_string("auto") || value.is_string("")) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_number()) return value.as_double() == 0.0;
  if (value.is_array()) return value.size() == 0;
  if (!value.is_object()) return false;
  if (value.size() == 0) return true;
  const files::json::Value* enabled = value.find("enabled");
  return enabled != nullptr && is_off(*enabled);
}

// Note [Values in quotes]
// DeepSpeed reads some blocks through pydantic, which takes "2" for 2 and "true", "yes" or 1 for
// true: Key::is_read_loosely. All other keys mean what they say.
//
// loosely(): the value that pydantic makes of a JSON value; absent if it is the same value, or
// none.
std::optional<files::json::Value> loosely(const Key& key, const files::json::Value& value) {
  constexpr std::array<std::string_view, 6> kTrue = {"true", "1", "yes", "on", "y", "t"};
  constexpr std::array<std::string_view, 6> kFalse = {"false", "0", "no", "off", "n", "f"};
  const KeyType type = key.setting.type;
  if (type == KeyType::boolean && value.is_number() &&
      (value.as_double() == 0.0 || value.as_double() == 1.0)) {
    return files::json::Value(value.as_double() == 1.0);
  }
  if (!value.is_string()) return std::nullopt;
  if (type == KeyType::boolean) {
    const auto is_one_of = [&](const auto& words) {
      const std::vector<std::string> names(words.begin(), words.end());
      return index_of_name(names, value.as_string()) < names.size();
    };
    if (is_one_of(kTrue)) return files::json::Value(true);
    if (is_one_of(kFalse)) return files::json::Value(false);
  }
  if (type == KeyType::integer || type == KeyType::number) {
    const std::optional<double> number = number_of(value);
    if (!number) return std::nullopt;
    const bool is_whole = *number == std::floor(*number) && std::abs(*number) <= kLargestCount;
    return is_whole ? files::json::Value(static_cast<int64_t>(*number))
                    : files::json::Value(*number);
  }
  return std::nullopt;
}

// The key itself, or the one that it is another name of, where "auto" stays open.
const Key* find_filled(const Key& key) {
  const Key* of = key.stands_for.empty() ? &key : find_key(key.stands_for);
  return of != nullptr && of->is_filled ? of : nullptr;
}

bool is_open(const files::json::Value& value) { return value.is_null() || value.is_string("auto"); }

class Reader {
 public:
  Reader(int64_t world_size, const Overrides& flags, const RankDefaults& defaults)
      : world_size_(world_size), flags_(flags) {
    for (const Key& key : config_keys()) {
      if (!key.default_value.is_null()) key.setting.set(config_, key.default_value);
    }
    config_.seed = defaults.seed.value_or(config_.seed);
    config_.num_threads = defaults.num_threads.value_or(config_.num_threads);
    config_.device_memory_limit = defaults.device_memory_limit;
    config_.comm_deadline = defaults.comm_deadline.value_or(config_.comm_deadline);
  }

  Config read(const files::json::Value& root) {
    read_block("", &root);
    const Reading reading{.config = config_,
                          .flags = flags_,
                          .world_size = world_size_,
                          .given = given_,
                          .findings = findings_};
    settle(reading);
    drop_what_does_not_count();
    findings_.throw_problems();
    check_together(reading);
    findings_.throw_problems();
    config_.notices = findings_.take_notices();
    return std::move(config_);
  }

 private:
  // `object` null: every key is absent.
  void read_block(std::string_view block, const files::json::Value* object);
  void read_key(const Key& key, const files::json::Value* value);
  void read_inner(const Key& key, const files::json::Value* value);
  void read_value(const Key& key, const files::json::Value* value, bool is_auto);
  const files::json::Value* understood(const Key& key, const files::json::Value* value);
  void look_at_others(std::string_view block, const files::json::Object& object);
  void report_unknown(std::string_view block, const std::string& path,
                      const files::json::Member& member);
  bool is_known(const Key& key) const { return !key.unknown_without || key.counts(config_); }
  void drop_what_does_not_count();

  int64_t world_size_;
  const Overrides& flags_;
  Findings findings_;
  Config config_;
  std::map<std::string, const files::json::Value*, std::less<>> given_;
  std::deque<files::json::Value> made_;  // see Note [Values in quotes]
  std::map<std::string, const files::json::Value*, std::less<>> renamed_;  // blocks under old names
};

// Reads other names of keys first, so that the key's own name wins.
void Reader::read_block(std::string_view block, const files::json::Value* object) {
  for (const bool other_names : {true, false}) {
    for (const Key* key : keys_of(block)) {
      if (key->stands_for.empty() == other_names) continue;
      const bool is_read =
          key->key_class == KeyClass::works || key->key_class == KeyClass::deprecated;
      if (!is_read || !is_known(*key)) continue;
      read_key(*key, object == nullptr ? nullptr : object->find(key->name()));
    }
  }
  if (object != nullptr) look_at_others(block, object->as_object());
}

const files::json::Value* Reader::understood(const Key& key, const files::json::Value* value) {
  if (value == nullptr) return nullptr;
  if (key.false_is_absent && value->is_bool() && !value->as_bool()) return nullptr;
  if (!key.is_read_loosely) return value;
  std::optional<files::json::Value> made = loosely(key, *value);
  // If the value is refused, the message shows it as the file has it.
  if (!made || !problem_with(key, *made).empty()) return value;
  return &made_.emplace_back(std::move(*made));
}

void Reader::read_key(const Key& key, const files::json::Value* value) {
  value = understood(key, value);
  const bool is_auto = value != nullptr && value->is_string("auto");
  if (value != nullptr && is_open(*value)) value = nullptr;
  if (key.key_class == KeyClass::deprecated && value != nullptr) {
    findings_.notice(str(key.path, " is deprecated; use ", key.stands_for));
  }
  if (key.is_block()) {
    read_inner(key, value);
  } else {
    read_value(key, value, is_auto);
  }
}

void Reader::read_inner(const Key& key, const files::json::Value* value) {
  if (!key.stands_for.empty()) {
    if (value != nullptr) renamed_[key.stands_for] = value;
    return;
  }
  if (const auto old = renamed_.find(key.path); old != renamed_.end()) {
    if (value != nullptr) findings_.notice("bfloat16 is ignored, because bf16 is there");
    if (value == nullptr) value = old->second;
  }
  if (value != nullptr && value->is_bool() && key.path == "zero_optimization") {
    findings_.notice("zero_optimization as true or false is deprecated; use {\"stage\": 1}");
    config_.engine.zero.stage = value->as_bool() ? 1 : 0;
    value = nullptr;
  }
  if (value != nullptr && !value->is_object()) {
    findings_.problem(*value, str(key.path, " ", problem_with(key, *value)));
    value = nullptr;
  }
  if (value != nullptr && key.setting.set) {
    given_[key.path] = value;
    key.setting.set(config_, *value);
  }
  read_block(key.path, value);
}

// The file's value where it is fixed, else the flag's, else what "auto" becomes.
void Reader::read_value(const Key& key, const files::json::Value* value, bool is_auto) {
  if (value != nullptr) {
    if (const std::string problem = problem_with(key, *value); !problem.empty()) {
      findings_.problem(*value, str(key.path, " ", problem));
      value = nullptr;
    }
  }
  const Setting& setting = key.setting;
  const files::json::Value flag = key.flag ? key.flag(flags_) : files::json::Value();
  if (value != nullptr) {
    given_[key.path] = value;
    if (setting.set) setting.set(config_, *value);
    if (!flag.is_null() && !key.flag_yields && setting.get(config_, world_size_) != flag) {
      findings_.problem(str(key.option, " ", files::json::write(flag), " contradicts ", key.path,
                            " ", files::json::write(*value),
                            " of the file; change one of them, or set the key to \"auto\""));
    }
  } else if (!flag.is_null()) {
    setting.set(config_, flag);
  } else if (is_auto && find_filled(key) != nullptr) {
    config_.open.push_back(find_filled(key)->path);
  } else if (is_auto && key.automatic) {
    const files::json::Value found = key.automatic(config_, flags_);
    if (!found.is_null()) setting.set(config_, found);
  }
}

void Reader::report_unknown(std::string_view block, const std::string& path,
                            const files::json::Member& member) {
  if (const Key* key = find_key(path); key != nullptr) {
    findings_.problem(member, str("unknown key ", path, ": it is for ", key->only_with));
    return;
  }
  std::vector<std::string> names;
  for (const Key* key : keys_of(block)) {
    if (is_known(*key)) names.emplace_back(key->name());
  }
  const std::string nearest = nearest_name(member.key, names);
  if (block.empty() && nearest.empty() && member.value.is_object()) {
    findings_.notice(
        str(path, " is no block of zinc or DeepSpeed, as of another tool: left aside"));
    return;
  }
  const std::string hint = nearest.empty() ? "" : str("; did you mean \"", nearest, "\"?");
  findings_.problem(member, str("unknown key ", path, hint));
}

// Reports keys that are unknown, refused or without effect.
void Reader::look_at_others(std::string_view block, const files::json::Object& object) {
  for (const files::json::Member& member : object) {
    const std::string path = block.empty() ? member.key : str(block, ".", member.key);
    const Key* key = find_key(path);
    if (key == nullptr || !is_known(*key)) {
      report_unknown(block, path, member);
      continue;
    }
    if (key->key_class == KeyClass::works || key->key_class == KeyClass::deprecated) continue;
    if (is_open(member.value)) continue;
    const files::json::Value& value = *understood(*key, &member.value);
    if (const std::string problem = problem_with(*key, value); !problem.empty()) {
      findings_.problem(value, str(path, " ", problem));
      continue;
    }
    const bool is_low = value.is_number() && value.as_double() <= key->off_up_to;
    if (key->accepted.is_null() ? is_low || is_off(value) : value == key->accepted) continue;
    if (key->key_class == KeyClass::refused) {
      findings_.problem(member, str(path, ": ", key->note));
    } else if (key->key_class == KeyClass::no_effect) {
      findings_.notice(str(path, " has no effect: ", key->note));
    } else {
      findings_.notice(str("warning: ", path, ": ", key->note));
    }
  }
}

void Reader::drop_what_does_not_count() {
  const Config fresh;
  for (const Key& key : config_keys()) {
    if (!key.stands_for.empty() || key.counts(config_) || key.unknown_without) continue;
    std::erase(config_.open, key.path);
    if (key.setting.set) key.setting.set(config_, key.setting.get(fresh, world_size_));
  }
}

Config read_root(const files::json::Value& root, std::string_view name, int64_t world_size,
                 const Overrides& flags, const RankDefaults& defaults) {
  if (!root.is_object()) {
    throw ConfigError(str(name, ": a configuration must be a JSON object"));
  }
  return Reader(world_size, flags, defaults).read(root);
}

}  // namespace

Config parse_config(std::string text, std::string name, int64_t world_size, const Overrides& flags,
                    const RankDefaults& defaults) {
  files::json::Value root;
  try {
    root = files::json::parse(std::move(text), name, files::json::ParseOptions::config());
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  }
  return read_root(root, name, world_size, flags, defaults);
}

Config load_config(const std::string& path, int64_t world_size, const Overrides& flags,
                   const RankDefaults& defaults) {
  files::json::Value root;
  try {
    root = files::json::parse_file(path, files::json::ParseOptions::config());
  } catch (const DataError& error) {
    throw ConfigError(error.what());
  } catch (const IoError& error) {
    if (error.error_number() != ENOENT) throw;
    throw ConfigError(str("there is no configuration file '", path, "'"));
  }
  return read_root(root, path, world_size, flags, defaults);
}

}  // namespace zinc::train
