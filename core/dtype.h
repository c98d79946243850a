// core/dtype.h: element types and their dispatch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/float16.h"

namespace zinc {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u8 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) { return dtype <= DType::f16; }
constexpr bool is_16bit_float(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

// "f32", "bf16", ...
std::string_view name_of(DType dtype);
inline std::string to_string(DType dtype) { return std::string(name_of(dtype)); }
// Accepts zinc's names and PyTorch's, DeepSpeed's and safetensors' spellings ("fp32", "float32",
// "F32", "half", "bfloat16", ...), without regard to case.
std::optional<DType> parse_dtype(std::string_view name);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

// The type in which T is accumulated: f64 for f64, f32 for every other float.
template <class T>
struct Accumulator {
  using type = float;
};
template <>
struct Accumulator<double> {
  using type = double;
};
template <class T>
using AccumulatorOf = typename Accumulator<T>::type;

// Calls `body.template operator()<T>()` with the C++ type of a float dtype:
//   dispatch_float(x.dtype(), [&]<class T>() { run<T>(x); });
template <class Body>
decltype(auto) dispatch_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f64:
      return body.template operator()<double>();
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bf16>();
    case DType::f16:
      return body.template operator()<f16>();
    default:
      break;
  }
  detail::throw_invalid_argument(str("a float dtype is needed here, not ", dtype));
}

// The same for i32 and i64.
template <class Body>
decltype(auto) dispatch_index(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::i64:
      return body.template operator()<int64_t>();
    case DType::i32:
      return body.template operator()<int32_t>();
    default:
      break;
  }
  detail::throw_invalid_argument(str("an index dtype (i32 or i64) is needed here, not ", dtype));
}

}  // namespace zinc
