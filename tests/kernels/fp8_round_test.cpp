#include "kernels/fp8_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels {
namespace fp8_round_test {

using test::HostArray;
using testing::HasSubstr;

#if defined(ZINC_CUDA_EMULATED)
constexpr bool kIsEmulated = true;
#else
constexpr bool kIsEmulated = false;
#endif
constexpr Fp8 kFormats[] = {Fp8::e4m3, Fp8::e5m2};
const char* name_of(Fp8 format) { return format == Fp8::e4m3 ? "e4m3" : "e5m2"; }

// The finite magnitudes of a format, from the words of the specification: sign, exponent, mantissa;
// the exponent's bias is 7 or 15. e4m3 has no infinity: all bits set is its NaN.
std::vector<double> magnitudes(Fp8 format) {
  const int mantissa_bits = format == Fp8::e4m3 ? 3 : 2, bias = format == Fp8::e4m3 ? 7 : 15;
  const int codes = format == Fp8::e4m3 ? 0x7f : 0x7c;
  std::vector<double> values;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = std::ldexp(mantissa, -mantissa_bits);
    values.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                   : std::ldexp(1.0 + fraction, exponent - bias));
  }
  return values;
}

// Nearest, to the even code where two are as near. Codes of neighbours differ by one.
double nearest(const std::vector<double>& values, double magnitude) {
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  if (above == values.end()) return values.back();
  if (above == values.begin() || *above == magnitude) return *above;
  const double low = *(above - 1), high = *above;
  if (magnitude - low != high - magnitude) return magnitude - low < high - magnitude ? low : high;
  return (above - values.begin()) % 2 == 0 ? high : low;
}

double scale_of(const std::vector<double>& values, double largest) {
  double scale = 1.0;
  while (largest * scale > values.back()) scale /= 2;
  while (largest * scale * 2 <= values.back()) scale *= 2;
  return scale;
}

HostArray rounded(const HostArray& x, Fp8 format, HostArray* largest = nullptr) {
  const test::DeviceScope scope(test::device_for(DType::bf16));
  HostArray y(x.shape(), DType::bf16), found(Shape{1}, DType::f32);
  fp8_round({.x = x, .format = format, .y = y, .largest = found}, test::test_stream());
  test::test_stream()->synchronize();
  if (largest != nullptr) *largest = found;
  return y;
}

TEST(Fp8Round, MagnitudesAreThoseOfTheSpecification) {
  EXPECT_EQ(magnitudes(Fp8::e4m3).back(), 448.0);
  EXPECT_EQ(magnitudes(Fp8::e5m2).back(), 57344.0);
  EXPECT_EQ(magnitudes(Fp8::e4m3)[1], 0x1p-9);
  EXPECT_EQ(magnitudes(Fp8::e5m2)[1], 0x1p-16);
}

// Every bf16 up to a largest one, on its grid.
TEST(Fp8Round, EveryNumber_IsTheNearestOfTheGrid) {
  for (const Fp8 format : kFormats) {
    const std::vector<double> values = magnitudes(format);
    for (const float largest : {448.0f, 1.0f, 1.75f, 1.7578125f, 3e-4f, 57344.0f, 3e38f, 1e-25f}) {
      std::vector<double> in;
      const uint32_t last = bf16(largest).bits;
      for (uint32_t bits = 0; bits <= last; ++bits) {
        bf16 value;
        value.bits = static_cast<uint16_t>(bits);
        in.push_back(static_cast<float>(value) * (bits % 2 == 0 ? 1.0 : -1.0));
      }
      const auto count = static_cast<int64_t>(in.size());
      const HostArray y = rounded(HostArray::of(in, Shape{count}, DType::bf16), format);
      const double scale = scale_of(values, std::abs(in.back()));
      for (int64_t i = 0; i < count; ++i) {
        const double x = in[static_cast<size_t>(i)];
        const double expected = std::copysign(nearest(values, std::abs(x) * scale) / scale, x);
        ASSERT_EQ(y.at(i), expected) << name_of(format) << " " << largest << ": " << x;
      }
    }
  }
}

TEST(Fp8Round, RowsWithGapsAndOddSizes) {
  for (const Fp8 format : kFormats) {
    const std::vector<double> values = magnitudes(format);
    for (const int64_t n : test::kOddSizes) {
      const HostArray dense = HostArray::random({3, n}, DType::bf16, 1, -7, 5);
      HostArray largest;
      const HostArray y = rounded(dense.with_padding(5), format, &largest);
      double expected = 0.0;
      for (int64_t i = 0; i < dense.numel(); ++i)
        expected = std::max(expected, std::abs(dense.at(i)));
      EXPECT_EQ(largest.at(0), expected);
      const double scale = expected == 0.0 ? 1.0 : scale_of(values, expected);
      for (int64_t i = 0; i < dense.numel(); ++i) {
        ASSERT_EQ(std::abs(y.at(i)), nearest(values, std::abs(dense.at(i)) * scale) / scale) << n;
      }
    }
  }
}

TEST(Fp8Round, ZerosStay_AndSoDoNanAndInfinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Fp8 format : kFormats) {
    const HostArray zeros = rounded(HostArray::full({40}, DType::bf16, 0.0), format);
    EXPECT_THAT(zeros.values(), testing::Each(0.0));
    const HostArray y =
        rounded(HostArray::of({1.0, std::nan(""), -infinity, 0.3}, {4}, DType::bf16), format);
    EXPECT_EQ(y.at(0), 1.0);
    EXPECT_TRUE(std::isnan(y.at(1)));
    EXPECT_EQ(y.at(2), -infinity);
    EXPECT_EQ(y.at(3), 0.3125);  // without a scale
  }
}

// 8 bits of a number on the grid are its place among the magnitudes, and the sign.
TEST(Fp8Round, CodesAreThoseOfTheSpecification) {
  for (const Fp8 format : kFormats) {
    const std::vector<double> values = magnitudes(format);
    for (size_t code = 0; code < values.size(); ++code) {
      const auto value = static_cast<float>(values[code]);
      EXPECT_EQ(fp8_code(format, value), code) << name_of(format);
      EXPECT_EQ(fp8_code(format, -value), code | 0x80u) << name_of(format);
    }
    EXPECT_EQ(fp8_code(format, std::nanf("")) & 0x7f, 0x7f);
    EXPECT_EQ(fp8_code(format, INFINITY), 0x7f);
  }
}

TEST(Fp8Round, InPlace) {
  const test::DeviceScope scope(test::device_for(DType::bf16));
  HostArray x = HostArray::of({1.0, 0.9375, -448.0}, {3}, DType::bf16), largest({1}, DType::f32);
  fp8_round({.x = x, .format = Fp8::e5m2, .y = x, .largest = largest}, test::test_stream());
  test::test_stream()->synchronize();
  EXPECT_THAT(x.values(), testing::ElementsAre(1.0, 1.0, -448.0));
}

TEST(Fp8Round, AKnownLargest_IsOnlyRead) {
  const test::DeviceScope scope(test::device_for(DType::bf16));
  HostArray x = HostArray::of({1.0, 0.40625, -0.03}, {3}, DType::bf16), y({3}, DType::bf16);
  HostArray largest = HostArray::of({1000.0}, {1}, DType::f32);
  fp8_round({.x = x, .format = Fp8::e4m3, .y = y, .largest = largest, .is_known = true},
            test::test_stream());
  test::test_stream()->synchronize();
  // Scaled by 1/4: numbers below 2^-4 are steps of 2^-7.
  EXPECT_THAT(y.values(), testing::ElementsAre(1.0, 0.40625, -0.03125));
  EXPECT_EQ(largest.at(0), 1000.0);
  EXPECT_EQ(cost(Fp8Round{.x = x, .y = y, .is_known = true}).bytes(), 12);
}

// A product with operands in 8 bits is one of operands that were rounded before: with its bits, but
// on a GPU that multiplies 8 bits, whose library adds in another order.
TEST(Gemm, EightBits_AreRoundedBefore) {
  const Fp8 formats[] = {Fp8::e5m2, Fp8::e4m3};
  for (int i = 0; i < 16; ++i) {
    const bool transpose_a = i % 2 != 0, transpose_b = i / 2 % 2 != 0, whole = i / 4 % 2 != 0;
    const DType to = i / 8 != 0 ? DType::f32 : DType::bf16;
    const int64_t m = whole ? 48 : 33, k = whole ? 64 : 70, n = whole ? 32 : 40;
    const test::CpuContext context;
    const test::DeviceScope scope(test::device_for(DType::bf16));
    const HostArray a =
        HostArray::random(transpose_a ? Shape{k, m} : Shape{m, k}, DType::bf16, 1, -9, 3);
    const HostArray b = HostArray::random(transpose_b ? Shape{n, k} : Shape{k, n}, DType::bf16, 2);
    HostArray got = HostArray::random({m, n}, to, 3), expected = got;
    const auto multiply = [&](const HostArray& left, const HostArray& right, HostArray& c,
                              bool in_8_bits) {
      Gemm args{.a = left, .b = right, .bias = {}, .activation_input = {}, .c = c};
      args.transpose_a = transpose_a;
      args.transpose_b = transpose_b;
      args.beta = 1.0;
      if (in_8_bits) args.a_fp8 = formats[0], args.b_fp8 = formats[1];
      gemm(args, test::test_stream());
      test::test_stream()->synchronize();
    };
    multiply(a, b, got, true);
    multiply(rounded(a, formats[0]), rounded(b, formats[1]), expected, false);
    if (test::runs_on_cuda() && !kIsEmulated) {
      // Tensor cores keep some 14 bits of a sum of 8 bits.
      EXPECT_LE(test::relative_l2(got, expected), to == DType::bf16 ? 0x1p-8 : 0x1p-10) << i;
    } else {
      EXPECT_TRUE(test::same_bits(got, expected)) << i;
    }
    EXPECT_FALSE(test::same_bits(rounded(a, formats[0]), a));
  }
}

TEST(Gemm, LargestOfAnOperandInEightBits_IsFoundOnce) {
  const test::CpuContext context;
  const test::DeviceScope scope(test::device_for(DType::bf16));
  const HostArray a = HostArray::random({16, 32}, DType::bf16, 1, -9, 3);
  const HostArray b = HostArray::random({32, 16}, DType::bf16, 2);
  HostArray left({1}, DType::f32), right({1}, DType::f32);
  HostArray found({16, 16}, DType::f32), known = found, other = found, alone = found;
  const auto multiply = [&](HostArray& c, bool with_places, bool is_known) {
    Gemm args{.a = a, .b = b, .bias = {}, .activation_input = {}, .c = c};
    args.a_fp8 = args.b_fp8 = Fp8::e4m3;
    if (with_places) args.a_largest = left, args.b_largest = right;
    args.a_largest_known = args.b_largest_known = is_known;
    gemm(args, test::test_stream());
    test::test_stream()->synchronize();
  };
  multiply(alone, false, false);
  multiply(found, true, false);
  EXPECT_TRUE(test::same_bits(found, alone));
  EXPECT_GT(left.at(0), 8.0);
  multiply(known, true, true);
  EXPECT_TRUE(test::same_bits(known, alone));
  left.set(0, 1e6);
  multiply(other, true, true);
  EXPECT_FALSE(test::same_bits(other, alone));
  EXPECT_THAT(test::message_of_invalid([&] { multiply(other, false, true); }),
              HasSubstr("the largest magnitude of a is known, and missing"));
}

TEST(Fp8Round, BadArgumentsCostAndMetaDevice) {
  HostArray x({8}, DType::bf16), wrong({8}, DType::f32), largest({1}, DType::f32);
  const auto message = [&](const Fp8Round& args) {
    return test::message_of_invalid([&] { fp8_round(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = wrong, .y = x, .largest = largest}), HasSubstr("x must be bf16"));
  EXPECT_THAT(message({.x = x, .y = wrong, .largest = largest}), HasSubstr("y must be bf16"));
  EXPECT_THAT(message({.x = x, .format = Fp8::none, .y = x, .largest = largest}),
              HasSubstr("a format is missing"));
  EXPECT_EQ(cost(Fp8Round{.x = x, .y = x}).bytes(), 48);
  const View nowhere = test::meta_view({8}, DType::bf16);
  fp8_round({.x = nowhere, .y = nowhere, .largest = test::meta_view({1}, DType::f32, 2)},
            test::test_stream());
  HostArray f16_x({8, 8}, DType::f16), out({8, 8}, DType::f16);
  EXPECT_THAT(test::message_of_invalid([&] {
                Gemm of_f16{.a = f16_x, .b = f16_x, .bias = {}, .activation_input = {}, .c = out};
                of_f16.a_fp8 = Fp8::e4m3;
                const test::CpuContext context;
                gemm(of_f16, test::test_stream());
              }),
              HasSubstr("rounded to 8 bits from bf16"));
}

}  // namespace fp8_round_test
}  // namespace zinc::kernels
