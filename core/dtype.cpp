#include "core/dtype.h"

#include <array>
#include <cctype>
#include <utility>

namespace zinc {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, DType>, 21> kNames{{
      {"f64", DType::f64},       {"fp64", DType::f64},  {"float64", DType::f64},
      {"double", DType::f64},    {"f32", DType::f32},   {"fp32", DType::f32},
      {"float32", DType::f32},   {"float", DType::f32}, {"bf16", DType::bf16},
      {"bfloat16", DType::bf16}, {"f16", DType::f16},   {"fp16", DType::f16},
      {"float16", DType::f16},   {"half", DType::f16},  {"i64", DType::i64},
      {"int64", DType::i64},     {"i32", DType::i32},   {"int32", DType::i32},
      {"u8", DType::u8},         {"uint8", DType::u8},  {"long", DType::i64},
  }};
  std::string lower;
  for (const char c : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [spelling, dtype] : kNames) {
    if (lower == spelling) return dtype;
  }
  return std::nullopt;
}

}  // namespace zinc
