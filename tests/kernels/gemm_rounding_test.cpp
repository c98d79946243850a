// A product in bf16 beside the same product left in f32: bias and rounding are all that may differ,
// bit for bit. The f32 one is the oracle of what the sums were, core/float16.h of their rounding.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "core/float16.h"
#include "kernels/gemm.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace gemm_rounding_test {

using ::testing::Bool;
using ::testing::Combine;
using ::testing::Values;
using namespace zinc::test;

enum class Bias { none, f32, bf16 };
void PrintTo(Bias bias, std::ostream* out) {
  *out << (bias == Bias::none ? "none" : bias == Bias::f32 ? "f32" : "bf16");
}

struct Extents {
  int64_t m, n, k;
};
void PrintTo(const Extents& e, std::ostream* out) { *out << e.m << "x" << e.n << "x" << e.k; }

uint16_t rounded(float sum, const HostArray* bias, int64_t column) {
  const float z = bias == nullptr ? sum : sum + static_cast<float>(bias->at(column));
  return std::bit_cast<uint16_t>(bf16(z));
}

class RoundedProduct
    : public ::testing::TestWithParam<std::tuple<Extents, Bias, std::tuple<bool, bool>>> {
 protected:
  // Expects c = round(a b + bias) with the bits of a b left in f32, and counts subnormal results.
  int64_t expect_bits(const HostArray& a, const HostArray& b, const HostArray* bias) {
    const auto [e, kind, transposed] = GetParam();
    const auto [ta, tb] = transposed;
    CpuContext context;
    HostArray sums({e.m, e.n}, DType::f32);
    HostArray c = HostArray::strided({e.m, e.n}, DType::bf16, 7);
    gemm({.a = a, .b = b, .c = sums, .transpose_a = ta, .transpose_b = tb}, context.stream());
    gemm({.a = a,
          .b = b,
          .bias = bias == nullptr ? ConstView() : ConstView(*bias),
          .c = c,
          .transpose_a = ta,
          .transpose_b = tb},
         context.stream());
    const View c_view = c.on_host(), sums_view = sums.on_host();
    int64_t subnormal = 0;
    for (int64_t i = 0; i < e.m; ++i) {
      for (int64_t j = 0; j < e.n; ++j) {
        const uint16_t got =
            std::bit_cast<uint16_t>(c_view.data_as<bf16>()[i * c_view.strides()[0] + j]);
        const uint16_t want = rounded(sums_view.data_as<float>()[i * e.n + j], bias, j);
        subnormal += (want & 0x7f80) == 0 && (want & 0x7f) != 0;
        EXPECT_EQ(got, want) << "at " << i << ", " << j;
        if (got != want) return subnormal;
      }
    }
    return subnormal;
  }

  HostArray bias_of(int64_t n, uint64_t seed, double size) const {
    const DType dtype = std::get<1>(GetParam()) == Bias::f32 ? DType::f32 : DType::bf16;
    return HostArray::random({n}, dtype, seed, -size, size);
  }
};

Shape stored(int64_t rows, int64_t cols, bool transposed) {
  return transposed ? Shape{cols, rows} : Shape{rows, cols};
}

TEST_P(RoundedProduct, RandomInputs_RoundTheSums) {
  const auto [e, kind, transposed] = GetParam();
  const HostArray a = HostArray::random(stored(e.m, e.k, std::get<0>(transposed)), DType::bf16, 1);
  const HostArray b = HostArray::random(stored(e.k, e.n, std::get<1>(transposed)), DType::bf16, 2);
  const HostArray bias = bias_of(e.n, 3, 1.0);
  expect_bits(a, b, kind == Bias::none ? nullptr : &bias);
}

TEST_P(RoundedProduct, Ties_GoToEven) {
  const auto [e, kind, transposed] = GetParam();
  // Integers: exact in f32, and beyond 256 every other one lies half way between two of bf16.
  const auto integers = [](const Shape& shape, uint64_t seed) {
    const HostArray drawn = HostArray::random(shape, DType::i32, seed, 0, 4);
    return HostArray::of(drawn.values(), shape, DType::bf16);
  };
  const HostArray a = integers(stored(e.m, e.k, std::get<0>(transposed)), 4);
  const HostArray b = integers(stored(e.k, e.n, std::get<1>(transposed)), 5);
  const HostArray bias = HostArray::full({e.n}, DType::f32, 1.0);
  expect_bits(a, b, kind == Bias::none ? nullptr : &bias);
}

TEST_P(RoundedProduct, SubnormalAndNonFiniteSums_KeepTheirBits) {
  const auto [e, kind, transposed] = GetParam();
  const auto [ta, tb] = transposed;
  HostArray a = HostArray::full(stored(e.m, e.k, ta), DType::bf16, 0.0);
  HostArray b = HostArray::full(stored(e.k, e.n, tb), DType::bf16, 1.0);
  // Row 0 is infinite, row 1 NaN, in the column of the last k; the others are zero.
  const double special[] = {std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()};
  for (int64_t i = 0; i < std::min<int64_t>(e.m, 2); ++i) {
    a.set(ta ? (e.k - 1) * e.m + i : i * e.k + e.k - 1, special[i]);
  }
  const HostArray bias = bias_of(e.n, 6, 3.0 * std::numeric_limits<float>::min());
  const int64_t subnormal = expect_bits(a, b, kind == Bias::none ? nullptr : &bias);
  if (kind != Bias::none && e.m > 2) {
    EXPECT_GT(subnormal, 0);
  }
}

std::string name_of(const ::testing::TestParamInfo<RoundedProduct::ParamType>& info) {
  const auto [e, bias, transposed] = info.param;
  const auto [ta, tb] = transposed;
  return std::to_string(e.m) + "x" + std::to_string(e.n) + "x" + std::to_string(e.k) +
         (bias == Bias::none  ? "_no_bias"
          : bias == Bias::f32 ? "_f32_bias"
                              : "_bf16_bias") +
         (ta ? "_ta" : "") + (tb ? "_tb" : "");
}

// Edges of tiles, panels and vectors, odd k, and k in one part, in two, and in slices.
INSTANTIATE_TEST_SUITE_P(Shapes, RoundedProduct,
                         Combine(Values(Extents{1, 1, 1}, Extents{9, 49, 33}, Extents{70, 113, 768},
                                        Extents{131, 400, 257}, Extents{40, 100, 1537},
                                        Extents{16, 20, 9000}),
                                 Values(Bias::none, Bias::f32, Bias::bf16),
                                 Combine(Bool(), Bool())),
                         name_of);

}  // namespace gemm_rounding_test
}  // namespace zinc::kernels
