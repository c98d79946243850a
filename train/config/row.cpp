#include "train/config/row.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace zinc::train {

Rows block(std::string_view name, std::string_view note, Rows inner) {
  for (Row& row : inner) row.path = str(name, ".", row.path);
  Row own = no_effect(name, KeyType::block, note, KeyClass::works);
  return {std::move(own), std::move(inner)};
}

Rows read_loosely(Rows rows) {
  for (Row& row : rows) row.is_read_loosely = !row.is_block();
  return rows;
}

Rows only(std::string_view words, const std::function<bool(const Config&)>& condition, Rows rows) {
  for (Row& row : rows) {
    row.only_with = words;
    row.in_force = condition;
  }
  return rows;
}

std::string_view deepspeed_name(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    default:
      return "fp32";
  }
}

size_t index_of_name(const std::vector<std::string>& names, std::string_view name) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& one) {
    return std::ranges::equal(one, name, same);
  });
  return static_cast<size_t>(found - names.begin());
}

std::optional<double> number_of(const files::json::Value& value) {
  if (value.is_number()) return value.as_double();
  if (!value.is_string()) return std::nullopt;
  const std::optional<files::json::Number> number = files::json::Number::parse(value.as_string());
  return number ? std::optional(number->to_double()) : std::nullopt;
}

std::optional<int64_t> bytes_of(const files::json::Value& value) {
  if (value.is_number()) {
    const std::optional<int64_t> bytes = value.as_number().to_int64();
    return bytes && *bytes >= 0 && *bytes <= kLargestCount ? bytes : std::nullopt;
  }
  const std::string text = value.is_string() ? value.as_string() : "";
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::optional<files::json::Number> number =
      files::json::Number::parse(text.substr(0, digits));
  if (!number) return std::nullopt;
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{{"", 1.0},
                                                                               {"B", 1.0},
                                                                               {"kB", 1e3},
                                                                               {"MB", 1e6},
                                                                               {"GB", 1e9},
                                                                               {"TB", 1e12},
                                                                               {"KiB", 0x1p10},
                                                                               {"MiB", 0x1p20},
                                                                               {"GiB", 0x1p30},
                                                                               {"TiB", 0x1p40}}};
  for (const auto& [unit, bytes] : kUnits) {
    if (text.substr(digits) != unit) continue;
    const double all = number->to_double() * bytes;
    if (all < 0x1p62) return static_cast<int64_t>(all);
  }
  return std::nullopt;
}

}  // namespace zinc::train
