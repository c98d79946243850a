#include "train/config/key.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/dtype.h"
#include "core/edit_distance.h"
#include "core/error.h"
#include "train/config/row.h"

namespace zinc::train {
namespace {

std::string range_problem(const Key& key, double value, const std::string& shown) {
  const Bounds& range = key.range;
  const KeyType type = key.setting.type;
  const bool whole =
      type == KeyType::integer || type == KeyType::integers || type == KeyType::bytes;
  const bool any_integer =
      key.key_class != KeyClass::works && key.key_class != KeyClass::deprecated;
  const double most = whole && std::isinf(range.most) && !any_integer
                          ? static_cast<double>(kLargestCount)
                          : range.most;
  const auto text = [&](double end) { return whole ? str(static_cast<int64_t>(end)) : str(end); };
  if (range.positive && value <= 0.0) return str("must be positive, not ", shown);
  if (value < range.least || value > most) {
    if (std::isfinite(range.least) && std::isfinite(range.most)) {
      return str("must be between ", text(range.least), " and ", text(most), ", not ", shown);
    }
    return value < range.least ? str("must be at least ", text(range.least), ", not ", shown)
                               : str("must be at most ", text(most), ", not ", shown);
  }
  if (range.multiple_of != 1 && std::fmod(value, static_cast<double>(range.multiple_of)) != 0.0) {
    return str("must be a multiple of ", range.multiple_of, ", not ", shown);
  }
  return {};
}

std::string joined(const std::vector<std::string>& words, std::string_view quote,
                   std::string_view last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += str(i == 0 ? "" : i + 1 == words.size() ? last : ", ", quote, words[i], quote);
  }
  return text;
}

std::string mistyped(std::string_view wanted, const files::json::Value& value) {
  return str("must be ", wanted, ", not ", name_of(value.kind()));
}

// The alternative to a value that zinc lacks; empty: none is known.
std::string instead_of(const Setting& setting, std::string_view name) {
  for (const auto& [absent, instead] : setting.absent) {
    if (index_of_name({absent}, name) == 0) return str("; ", instead);
  }
  return {};
}

std::string problem_with_text(const Key& key, const files::json::Value& value) {
  const std::vector<std::string>& choices = key.setting.choices;
  switch (key.setting.type) {
    case KeyType::choice:
      for (const std::string& choice : choices) {
        if (value.is_string(choice)) return {};
      }
      if (value.is_string()) {
        const std::string nearest = nearest_name(value.as_string(), choices);
        return str("must be ", joined(choices, "\"", " or "),
                   nearest.empty() ? "" : str("; did you mean \"", nearest, "\"?"));
      }
      return str("must be ", joined(choices, "\"", " or "));
    case KeyType::name:
      if (!value.is_string()) return mistyped("a string", value);
      if (index_of_name(choices, value.as_string()) < choices.size()) return {};
      return str("\"", value.as_string(), "\" is not implemented; there are ",
                 joined(choices, "", " and "), instead_of(key.setting, value.as_string()));
    case KeyType::dtype: {
      const auto dtype = value.is_string() ? parse_dtype(value.as_string()) : std::nullopt;
      const bool good = dtype && is_float(*dtype) && *dtype != DType::f64;
      return good ? "" : "must be \"fp32\", \"fp16\" or \"bf16\"";
    }
    default:
      return value.is_string() ? "" : mistyped("a string", value);
  }
}

bool is_list_of_strings(const files::json::Value& value) {
  return value.is_array() &&
         std::ranges::all_of(value.as_array(), [](const auto& one) { return one.is_string(); });
}

// A list of integers, each in the key's range.
std::string problem_with_integers(const Key& key, const files::json::Value& value) {
  if (!value.is_array()) return mistyped("a list of integers", value);
  for (const files::json::Value& one : value.as_array()) {
    if (!one.is_number() || !one.is_integer()) return "must be a list of integers";
    if (std::string problem = range_problem(key, one.as_double(), one.as_number().text());
        !problem.empty()) {
      return str(problem, ", each");
    }
  }
  return {};
}

std::string problem_with_pair(const Key& key, const files::json::Value& value) {
  bool good = value.is_array() && value.size() == 2;
  for (size_t i = 0; good && i < 2; ++i) {
    const files::json::Value& number = value.at(i);
    good = number.is_number() && number.as_double() >= key.range.least &&
           number.as_double() < key.range.most;
  }
  if (good) return {};
  return str("must be two numbers in [", key.range.least, ", ", key.range.most, ")");
}

}  // namespace

std::string_view name_of(KeyClass key_class) {
  switch (key_class) {
    case KeyClass::works:
      return "works";
    case KeyClass::no_effect:
      return "no effect";
    case KeyClass::warning:
      return "warning";
    case KeyClass::refused:
      return "refused";
    case KeyClass::deprecated:
      return "deprecated";
  }
  return "?";
}

std::string_view name_of(KeyType type) {
  static constexpr std::array<std::string_view, 15> kNames{
      "any",    "boolean",        "integer", "unsigned integer",
      "number", "number or text", "text",    "choice",
      "name",   "dtype",          "bytes",   "pair",
      "texts",  "integers",       "block"};
  return kNames.at(static_cast<size_t>(type));
}

std::string_view Key::block() const {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(path).substr(0, dot);
}

std::string_view Key::name() const {
  const size_t dot = path.rfind('.');
  return std::string_view(path).substr(dot == std::string::npos ? 0 : dot + 1);
}

files::json::Value Key::default_json() const {
  if (!default_value.is_null() || !setting.get) return default_value;
  return setting.get(Config{}, 1);
}

std::string problem_with(const Key& key, const files::json::Value& value) {
  switch (key.setting.type) {
    case KeyType::any:
      return {};
    case KeyType::boolean:
      return value.is_bool() ? "" : mistyped("true or false", value);
    case KeyType::block:
      return value.is_object() ? "" : mistyped("an object", value);
    case KeyType::unsigned_integer:
      return value.is_number() && value.as_number().to_uint64()
                 ? ""
                 : "must be an integer between 0 and 2^64 - 1";
    case KeyType::pair:
      return problem_with_pair(key, value);
    case KeyType::texts:
      return is_list_of_strings(value) ? "" : "must be a list of strings";
    case KeyType::integers:
      return problem_with_integers(key, value);
    case KeyType::quoted_number: {
      const auto number = number_of(value);
      if (number) return range_problem(key, *number, str(*number));
      return value.is_string() ? str("must be a number of at least ", key.range.least, ", not \"",
                                     value.as_string(), "\"")
                               : mistyped("a number", value);
    }
    case KeyType::bytes:
      if (!bytes_of(value)) return "must be a size as in \"2GiB\" or \"500MB\"";
      return {};
    case KeyType::integer:
      if (!value.is_number()) return mistyped("an integer", value);
      if (!value.is_integer()) return str("must be an integer, not ", value.as_double());
      return range_problem(key, value.as_double(), value.as_number().text());
    case KeyType::number:
      if (!value.is_number()) return mistyped("a number", value);
      return range_problem(key, value.as_double(), str(value.as_double()));
    case KeyType::text:
    case KeyType::choice:
    case KeyType::name:
    case KeyType::dtype:
      return problem_with_text(key, value);
  }
  return {};
}

std::string values_of(const Key& key) {
  const Bounds& range = key.range;
  switch (key.setting.type) {
    case KeyType::any:
      return {};
    case KeyType::choice:
    case KeyType::name:
      return joined(key.setting.choices, "\"", " or ");
    case KeyType::dtype:
      return "\"fp32\", \"fp16\" or \"bf16\"";
    case KeyType::boolean:
      return "true or false";
    case KeyType::bytes:
      return "bytes, or as in \"2GiB\"";
    case KeyType::unsigned_integer:
      return "integer, 0 to 2^64 - 1";
    case KeyType::pair:
      return str("two numbers in [", range.least, ", ", range.most, ")");
    case KeyType::texts:
      return "strings in a list";
    case KeyType::integers:
      return str("integers in a list, each at least ", static_cast<int64_t>(range.least));
    default:
      break;
  }
  std::string text(key.setting.type == KeyType::quoted_number ? "number, also in quotes"
                                                              : name_of(key.setting.type));
  const auto number = [&](double value) {
    return key.setting.type == KeyType::integer ? str(static_cast<int64_t>(value)) : str(value);
  };
  if (!key.unit.empty()) text = key.unit;
  if (range.positive) text += ", positive";
  if (std::isfinite(range.least) && std::isfinite(range.most)) {
    text += str(", ", number(range.least), " to ", number(range.most));
  } else if (std::isfinite(range.least)) {
    text += str(", at least ", number(range.least));
  }
  if (range.multiple_of != 1) text += str(", a multiple of ", range.multiple_of);
  return text;
}

}  // namespace zinc::train
