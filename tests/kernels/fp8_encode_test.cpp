#include "kernels/fp8_encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels {
namespace fp8_encode_test {

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

// A matrix in 8 bits.
struct Encoded {
  HostArray codes, transposed, scale;
};

Encoded encoded(const HostArray& x, Fp8 format) {
  const test::DeviceScope scope(test::device_for(DType::bf16));
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  Encoded of{.codes = HostArray({rows, cols}, DType::u8),
             .transposed = HostArray({cols, rows}, DType::u8),
             .scale = HostArray({kFp8ScaleNumel}, DType::f32)};
  fp8_encode(
      {.x = x, .format = format, .codes = of.codes, .transposed = of.transposed, .scale = of.scale},
      test::test_stream());
  test::test_stream()->synchronize();
  return of;
}

// The values that the codes of `x` stand for. `of`: receives the codes.
HostArray rounded(const HostArray& x, Fp8 format, Encoded* of = nullptr) {
  const Encoded here = encoded(x, format);
  if (of != nullptr) *of = here;
  const test::DeviceScope scope(test::device_for(DType::bf16));
  HostArray y(x.shape(), DType::bf16);
  fp8_decode({.codes = here.codes, .format = format, .scale = here.scale, .y = y},
             test::test_stream());
  test::test_stream()->synchronize();
  return y;
}

TEST(Fp8Encode, MagnitudesAreThoseOfTheSpecification) {
  EXPECT_EQ(magnitudes(Fp8::e4m3).back(), 448.0);
  EXPECT_EQ(magnitudes(Fp8::e5m2).back(), 57344.0);
  EXPECT_EQ(magnitudes(Fp8::e4m3)[1], 0x1p-9);
  EXPECT_EQ(magnitudes(Fp8::e5m2)[1], 0x1p-16);
}

// Every bf16 up to a largest one, on its grid.
TEST(Fp8Encode, EveryNumber_IsTheNearestOfTheGrid) {
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
      const HostArray y = rounded(HostArray::of(in, Shape{1, count}, DType::bf16), format);
      const double scale = scale_of(values, std::abs(in.back()));
      for (int64_t i = 0; i < count; ++i) {
        const double x = in[static_cast<size_t>(i)];
        const double expected = std::copysign(nearest(values, std::abs(x) * scale) / scale, x);
        ASSERT_EQ(y.at(i), expected) << name_of(format) << " " << largest << ": " << x;
      }
    }
  }
}

TEST(Fp8Encode, RowsWithGapsAndOddSizes) {
  for (const Fp8 format : kFormats) {
    const std::vector<double> values = magnitudes(format);
    for (const int64_t n : test::kOddSizes) {
      const HostArray dense = HostArray::random({3, n}, DType::bf16, 1, -7, 5);
      Encoded of;
      const HostArray y = rounded(dense.with_padding(5), format, &of);
      double expected = 0.0;
      for (int64_t i = 0; i < dense.numel(); ++i)
        expected = std::max(expected, std::abs(dense.at(i)));
      EXPECT_EQ(of.scale.at(0), expected);
      const double scale = expected == 0.0 ? 1.0 : scale_of(values, expected);
      EXPECT_EQ(of.scale.at(1), 1.0 / scale);
      for (int64_t i = 0; i < dense.numel(); ++i) {
        ASSERT_EQ(std::abs(y.at(i)), nearest(values, std::abs(dense.at(i)) * scale) / scale) << n;
      }
    }
  }
}

TEST(Fp8Encode, ZerosStay_AndInfinityBecomesNan) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Fp8 format : kFormats) {
    const HostArray zeros = rounded(HostArray::full({2, 20}, DType::bf16, 0.0), format);
    EXPECT_THAT(zeros.values(), testing::Each(0.0));
    const HostArray y =
        rounded(HostArray::of({1.0, std::nan(""), -infinity, 0.3}, {2, 2}, DType::bf16), format);
    EXPECT_EQ(y.at(0), 1.0);
    EXPECT_TRUE(std::isnan(y.at(1)));
    EXPECT_TRUE(std::isnan(y.at(2)));
    EXPECT_EQ(y.at(3), 0.3125);  // without a scale
  }
}

// 8 bits of a number on the grid are its place among the magnitudes, and the sign.
TEST(Fp8Encode, CodesAreThoseOfTheSpecification) {
  for (const Fp8 format : kFormats) {
    const std::vector<double> values = magnitudes(format);
    for (size_t code = 0; code < values.size(); ++code) {
      const auto value = static_cast<float>(values[code]);
      EXPECT_EQ(fp8_code(format, value), code) << name_of(format);
      EXPECT_EQ(fp8_code(format, -value), code | 0x80u) << name_of(format);
    }
    for (size_t code = 0; code < 128; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      if (code < values.size()) {
        EXPECT_EQ(fp8_value(format, byte), values[code]) << code;
        EXPECT_EQ(fp8_value(format, byte | 0x80u), -values[code]) << code;
        EXPECT_EQ(std::signbit(fp8_value(format, byte | 0x80u)), true) << code;
      } else {
        EXPECT_TRUE(std::isnan(fp8_value(format, byte))) << code;
      }
    }
    EXPECT_EQ(fp8_code(format, std::nanf("")) & 0x7f, 0x7f);
    EXPECT_EQ(fp8_code(format, INFINITY), 0x7f);
  }
}

// Tiles that are whole, cut off, and read and written a number at a time.
TEST(Fp8Encode, BothFormsAreCodesOfTheGrid) {
  for (const Fp8 format : kFormats) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{48, 80}, {33, 70}, {1, 5}, {130, 64}, {64, 136}}) {
      for (const int64_t gap : {0, 3, 8}) {
        const HostArray x =
            HostArray::random({rows, cols}, DType::bf16, 1, -3, 5).with_padding(gap);
        Encoded of;
        const HostArray y = rounded(x, format, &of);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            const int exponent = fp8_scale_exponent(format, static_cast<float>(of.scale.at(0)));
            const float on_grid =
                round_to_fp8(format, exponent, static_cast<float>(x.at(i * cols + j)));
            ASSERT_EQ(y.at(i * cols + j), on_grid) << i << ", " << j;
            const uint8_t code = fp8_code(format, on_grid * power_of_two(exponent));
            ASSERT_EQ(of.codes.at(i * cols + j), code) << i << ", " << j;
            ASSERT_EQ(of.transposed.at(j * rows + i), code) << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST(Fp8Encode, OneFormAlone_IsThatOfBoth) {
  const HostArray x = HostArray::random({70, 90}, DType::bf16, 1, -3, 5);
  const Encoded both = encoded(x, Fp8::e4m3);
  const test::DeviceScope scope(test::device_for(DType::bf16));
  HostArray codes({70, 90}, DType::u8), transposed({90, 70}, DType::u8);
  HostArray scale({kFp8ScaleNumel}, DType::f32);
  fp8_encode({.x = x, .codes = codes, .scale = scale}, test::test_stream());
  fp8_encode({.x = x, .transposed = transposed, .scale = scale, .is_known = true},
             test::test_stream());
  test::test_stream()->synchronize();
  EXPECT_TRUE(test::same_bits(codes, both.codes));
  EXPECT_TRUE(test::same_bits(transposed, both.transposed));
  EXPECT_TRUE(test::same_bits(scale, both.scale));
}

TEST(Fp8Encode, AKnownScale_IsOnlyRead) {
  const test::DeviceScope scope(test::device_for(DType::bf16));
  const HostArray x = HostArray::of({1.0, 0.40625, -0.03}, {1, 3}, DType::bf16);
  HostArray codes({1, 3}, DType::u8), y({1, 3}, DType::bf16);
  HostArray scale = HostArray::of({1000.0, 4.0}, {kFp8ScaleNumel}, DType::f32);
  fp8_encode({.x = x, .codes = codes, .scale = scale, .is_known = true}, test::test_stream());
  fp8_decode({.codes = codes, .scale = scale, .y = y}, test::test_stream());
  test::test_stream()->synchronize();
  // Scaled by 1/4: numbers below 2^-4 are steps of 2^-7.
  EXPECT_THAT(y.values(), testing::ElementsAre(1.0, 0.40625, -0.03125));
  EXPECT_EQ(scale.at(0), 1000.0);
  EXPECT_EQ(cost(Fp8Encode{.x = x, .codes = codes, .scale = scale, .is_known = true}).bytes(), 9);
}

// A product of codes is one of the numbers they stand for: with its bits, but on a GPU that
// multiplies 8 bits, whose library adds in another order.
TEST(Gemm, Codes_AreTheNumbersTheyStandFor) {
  const Fp8 formats[] = {Fp8::e5m2, Fp8::e4m3};
  for (int i = 0; i < 32; ++i) {
    const bool transpose_a = i % 2 != 0, transpose_b = i / 2 % 2 != 0, whole = i / 4 % 2 != 0;
    const bool decoded_as_read = whole && !transpose_a && transpose_b;
    const DType to = i / 8 % 2 != 0 ? DType::f32 : DType::bf16;
    const bool has_bias = i / 16 != 0;
    const int64_t m = whole ? 48 : 33, k = whole ? 64 : 70, n = whole ? 32 : 40;
    const test::CpuContext context;
    const test::DeviceScope scope(test::device_for(DType::bf16));
    const HostArray a =
        HostArray::random(transpose_a ? Shape{k, m} : Shape{m, k}, DType::bf16, 1, -9, 3);
    const HostArray b = HostArray::random(transpose_b ? Shape{n, k} : Shape{k, n}, DType::bf16, 2);
    const HostArray bias = HostArray::random({n}, DType::bf16, 4);
    HostArray got = HostArray::random({m, n}, to, 3), expected = got;
    const auto multiply = [&](Gemm args) {
      if (has_bias) args.bias = bias;
      args.transpose_a = transpose_a;
      args.transpose_b = transpose_b;
      args.beta = 1.0;
      gemm(args, test::test_stream());
      test::test_stream()->synchronize();
    };
    Encoded left, right;
    const HostArray of_a = rounded(a, formats[0], &left), of_b = rounded(b, formats[1], &right);
    multiply({.a = left.codes,
              .b = right.codes,
              .c = got,
              .a_fp8 = formats[0],
              .b_fp8 = formats[1],
              .a_scale = left.scale,
              .b_scale = right.scale});
    multiply({.a = of_a, .b = of_b, .c = expected});
    if (test::runs_on_cuda() && !kIsEmulated && decoded_as_read) {
      // Tensor cores keep some 14 bits of a sum of 8 bits.
      EXPECT_LE(test::relative_l2(got, expected), to == DType::bf16 ? 0x1p-8 : 0x1p-10) << i;
    } else {
      EXPECT_TRUE(test::same_bits(got, expected)) << i;
    }
    EXPECT_FALSE(test::same_bits(of_a, a));
  }
}

// Codes that tensor cores take need no memory; others are decoded, on every device.
TEST(Gemm, Codes_TakeWorkspaceOnlyWhereTheyAreDecoded) {
  const auto workspace = [](DeviceKind kind, int64_t m, bool transpose_b) {
    Context context({.device = {.kind = kind, .meta = true}, .num_threads = 1});
    const ContextScope scope(context);
    const auto codes = [](const Shape& shape) { return test::meta_view(shape, DType::u8); };
    const auto on = [&](const View& view) {
      return View(view.data(), view.dtype(), view.shape(), context.device());
    };
    const View scale = on(test::meta_view({kFp8ScaleNumel}, DType::f32, 3));
    gemm({.a = on(codes({m, 64})),
          .b = on(codes(transpose_b ? Shape{32, 64} : Shape{64, 32})),
          .c = on(test::meta_view({m, 32}, DType::bf16, 2)),
          .transpose_b = transpose_b,
          .a_fp8 = Fp8::e4m3,
          .b_fp8 = Fp8::e4m3,
          .a_scale = scale,
          .b_scale = scale},
         context.compute());
    return context.allocator().report().at(Tier::device, Label::workspace).peak;
  };
  const int64_t taken = workspace(DeviceKind::cuda, 128, true);
  EXPECT_EQ(workspace(DeviceKind::cuda, 120, true), taken + (120 + 32) * 64 * 2);
  EXPECT_EQ(workspace(DeviceKind::cuda, 128, false), taken + (128 + 32) * 64 * 2);
  EXPECT_GE(workspace(DeviceKind::cpu, 128, true), (128 + 32) * 64 * 2);
}

TEST(Fp8Encode, BadArgumentsCostAndMetaDevice) {
  HostArray x({2, 4}, DType::bf16), wrong({2, 4}, DType::f32), flat({8}, DType::bf16);
  HostArray codes({2, 4}, DType::u8), transposed({4, 2}, DType::u8), scale({2}, DType::f32);
  const auto message = [&](const Fp8Encode& args) {
    return test::message_of_invalid([&] { fp8_encode(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = wrong, .codes = codes, .scale = scale}), HasSubstr("x must be bf16"));
  EXPECT_THAT(message({.x = flat, .codes = codes, .scale = scale}),
              HasSubstr("x must be a matrix"));
  EXPECT_THAT(message({.x = x, .codes = x, .scale = scale}), HasSubstr("codes must be u8"));
  EXPECT_THAT(message({.x = x, .transposed = codes, .scale = scale}), HasSubstr("transposed"));
  EXPECT_THAT(message({.x = x, .codes = codes, .scale = transposed}),
              HasSubstr("scale must be f32"));
  EXPECT_THAT(message({.x = x, .format = Fp8::none, .codes = codes, .scale = scale}),
              HasSubstr("a format is missing"));
  EXPECT_EQ(cost(Fp8Encode{.x = x, .codes = codes, .transposed = transposed}).bytes(), 32 + 16);
  EXPECT_EQ(cost(Fp8Decode{.codes = codes, .y = x}).bytes(), 8 + 16);
  EXPECT_THAT(test::message_of_invalid([&] {
                fp8_decode({.codes = codes, .scale = scale, .y = wrong}, test::test_stream());
              }),
              HasSubstr("y must be bf16"));
  const View nowhere = test::meta_view({2, 4}, DType::bf16);
  fp8_encode({.x = nowhere,
              .codes = test::meta_view({2, 4}, DType::u8, 2),
              .scale = test::meta_view({2}, DType::f32, 3)},
             test::test_stream());
  const test::CpuContext context;
  const auto product = [&](const Gemm& args) {
    return test::message_of_invalid([&] { gemm(args, test::test_stream()); });
  };
  HostArray c({2, 2}, DType::bf16), sums({4}, DType::bf16);
  Gemm args{.a = codes,
            .b = codes,
            .c = c,
            .transpose_b = true,
            .a_fp8 = Fp8::e4m3,
            .b_fp8 = Fp8::e4m3,
            .a_scale = scale,
            .b_scale = scale};
  args.b_fp8 = Fp8::none;
  EXPECT_THAT(product(args), HasSubstr("in 8 bits are both operands, or none"));
  args.b_fp8 = Fp8::e4m3;
  args.a = x;
  EXPECT_THAT(product(args), HasSubstr("a must be u8"));
  args.a = codes;
  args.b_scale = {};
  EXPECT_THAT(product(args), HasSubstr("b_scale"));
  args.b_scale = scale;
  args.transpose_a = true;
  args.transpose_b = false;
  args.a_sums = sums;
  EXPECT_THAT(product(args), HasSubstr("sums over k are not of codes"));
}

}  // namespace fp8_encode_test
}  // namespace zinc::kernels
