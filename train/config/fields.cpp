#include "train/config/fields.h"

#include <cctype>
#include <cmath>

#include "core/edit_distance.h"
#include "core/error.h"
#include "train/config/config.h"

namespace zinc::train {
namespace {

// A value that asks for nothing: false, null, 0, "", "auto", {} and {"enabled": false}.
bool is_off(const json::Value& value) {
  if (value.is_null() || value.is_string("auto") || value.is_string("")) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_number()) return value.as_double() == 0.0;
  if (value.is_array()) return value.size() == 0;
  if (!value.is_object()) return false;
  if (value.size() == 0) return true;
  const json::Value* enabled = value.find("enabled");
  return enabled != nullptr && is_off(*enabled);
}

const KeyInfo* find_key(std::string_view path) {
  for (const KeyInfo& key : config_keys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

// Empty where the value is of the key's kind.
std::string_view wanted_instead(const json::Value& value, KeyValue kind) {
  switch (kind) {
    case KeyValue::checked_elsewhere:
      return {};
    case KeyValue::boolean:
      return value.is_bool() ? "" : "true or false";
    case KeyValue::integer:
      return value.is_integer() ? "" : "an integer";
    case KeyValue::text:
      return value.is_string() ? "" : "a string";
    case KeyValue::block:
      return value.is_object() ? "" : "an object";
  }
  return {};
}

// Names of keys directly under `block`.
std::vector<std::string> keys_under(std::string_view block) {
  std::vector<std::string> names;
  for (const KeyInfo& key : config_keys()) {
    std::string_view rest = key.path;
    if (!block.empty()) {
      if (!rest.starts_with(block) || rest.size() <= block.size() || rest[block.size()] != '.') {
        continue;
      }
      rest.remove_prefix(block.size() + 1);
    }
    if (rest.find('.') == std::string_view::npos) names.emplace_back(rest);
  }
  return names;
}

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

void Findings::problem(const json::Value& at, std::string_view message) {
  if (at.source() == nullptr) {
    problems_.emplace_back(message);
  } else {
    problems_.push_back(at.source()->describe(at.span(), message));
  }
}

void Findings::throw_problems() const {
  if (problems_.empty()) return;
  std::string text;
  for (const std::string& problem : problems_) text += (text.empty() ? "" : "\n") + problem;
  if (problems_.size() > 1) text = concat(problems_.size(), " problems\n", text);
  throw ConfigError(text);
}

Fields::Fields(const json::Value* object, std::string path, Findings& findings)
    : object_(object), path_(std::move(path)), findings_(findings) {
  if (object_ != nullptr && !object_->is_object()) {
    findings_.problem(*object_, concat(path_.empty() ? "the configuration" : path_,
                                       " must be an object, not ", name_of(object_->kind())));
    object_ = nullptr;
  }
}

std::string Fields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : concat(path_, ".", key);
}

const json::Value* Fields::find(std::string_view key) {
  asked_.emplace(key);
  if (object_ == nullptr) return nullptr;
  const json::Value* value = object_->find(key);
  if (value == nullptr || value->is_null() || value->is_string("auto")) return nullptr;
  return value;
}

bool Fields::is_auto(std::string_view key) const {
  if (object_ == nullptr) return false;
  const json::Value* value = object_->find(key);
  return value != nullptr && value->is_string("auto");
}

bool Fields::has(std::string_view key) const {
  return object_ != nullptr && object_->find(key) != nullptr;
}

std::optional<bool> Fields::boolean(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->as_bool();
  findings_.problem(*value, concat(path_of(key), " must be true or false"));
  return std::nullopt;
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t min, int64_t max) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number =
      value->is_number() ? value->as_number().to_int64() : std::nullopt;
  if (!number) {
    findings_.problem(*value, concat(path_of(key), " must be an integer"));
  } else if (*number < min || *number > max) {
    const bool open = max == kLargestCount;
    findings_.problem(
        *value,
        !open ? concat(path_of(key), " must be between ", min, " and ", max, ", not ", *number)
        : *number < min ? concat(path_of(key), " must be at least ", min, ", not ", *number)
                        : concat(path_of(key), " must be at most ", max, ", not ", *number));
  } else {
    return number;
  }
  return std::nullopt;
}

std::optional<uint64_t> Fields::unsigned_integer(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<uint64_t> number =
      value->is_number() ? value->as_number().to_uint64() : std::nullopt;
  if (!number) {
    findings_.problem(*value, concat(path_of(key), " must be an integer between 0 and 2^64 - 1"));
  }
  return number;
}

std::optional<double> Fields::number(std::string_view key, double min, double max) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    findings_.problem(*value, concat(path_of(key), " must be a number"));
    return std::nullopt;
  }
  const double number = value->as_double();
  if (number < min || number > max) {
    const bool open = max == std::numeric_limits<double>::max();
    findings_.problem(
        *value,
        open ? concat(path_of(key), " must be at least ", min, ", not ", number)
             : concat(path_of(key), " must be between ", min, " and ", max, ", not ", number));
    return std::nullopt;
  }
  return number;
}

std::optional<double> Fields::number_or_text(std::string_view key, double min) {
  const json::Value* value = find(key);
  if (value == nullptr || !value->is_string()) return number(key, min);
  const std::optional<json::Number> parsed = json::Number::parse(value->as_string());
  if (parsed && parsed->to_double() >= min) return parsed->to_double();
  findings_.problem(*value, concat(path_of(key), " must be a number of at least ", min, ", not \"",
                                   value->as_string(), "\""));
  return std::nullopt;
}

std::optional<std::string> Fields::text(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  findings_.problem(*value, concat(path_of(key), " must be a string"));
  return std::nullopt;
}

std::optional<size_t> Fields::choice(std::string_view key,
                                     const std::vector<std::string>& choices) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  std::string all;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (value->is_string(choices[i])) return i;
    all += concat(i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ", "\"", choices[i], "\"");
  }
  findings_.problem(*value, concat(path_of(key), " must be ", all));
  return std::nullopt;
}

std::optional<int64_t> Fields::bytes(std::string_view key) {
  const json::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return integer(key, 0);
  const std::string text = value->is_string() ? value->as_string() : "";
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  static const std::map<std::string, double> kUnits{
      {"", 1.0},    {"B", 1.0},      {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  const auto known = kUnits.find(unit);
  const std::optional<json::Number> number = json::Number::parse(text.substr(0, digits));
  const double bytes = number && known != kUnits.end() ? number->to_double() * known->second : -1.0;
  if (!(bytes >= 0.0 && bytes < 0x1p62)) {
    findings_.problem(*value, concat(path_of(key), " must be a size as in \"2GiB\" or \"500MB\""));
    return std::nullopt;
  }
  return static_cast<int64_t>(bytes);
}

const json::Value* Fields::block(std::string_view key) { return find(key); }

const json::Value* Fields::deprecated(std::string_view key, std::string_view replacement) {
  const json::Value* value = find(key);
  if (value != nullptr) {
    findings_.notice(concat(path_of(key), " is deprecated; use ", replacement));
  }
  return value;
}

void Fields::sort_unknown(const json::Member& member) {
  const std::string path = path_of(member.key);
  const KeyInfo* info = find_key(path);
  if (info == nullptr) {
    const std::string nearest = nearest_name(member.key, keys_under(path_));
    const std::string hint = nearest.empty() ? "" : concat("; did you mean \"", nearest, "\"?");
    findings_.problem(
        member.value.source()->describe(member.key_span, concat("unknown key ", path, hint)));
    return;
  }
  const bool open = member.value.is_null() || member.value.is_string("auto");
  const std::string_view wanted = wanted_instead(member.value, info->value);
  if (!open && !wanted.empty()) {
    findings_.problem(member.value,
                      concat(path, " must be ", wanted, ", not ", name_of(member.value.kind())));
    return;
  }
  if (is_off(member.value)) return;
  switch (info->key_class) {
    case KeyClass::refused:
      findings_.problem(
          member.value.source()->describe(member.key_span, concat(path, ": ", info->note)));
      break;
    case KeyClass::no_effect:
      findings_.notice(concat(path, " has no effect: ", info->note));
      break;
    case KeyClass::warning:
      findings_.notice(concat("warning: ", path, ": ", info->note));
      break;
    case KeyClass::works:
    case KeyClass::deprecated:
      break;
  }
}

void Fields::finish() {
  if (object_ == nullptr) return;
  for (const json::Member& member : object_->as_object()) {
    if (!asked_.contains(member.key)) sort_unknown(member);
  }
}

}  // namespace zinc::train
