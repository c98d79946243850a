// Block products of bf16, each kind that this CPU has: the block against sums in f64, and the
// promises that kernels/cpu/block_product.h and bf16_product.h make of their bits.
#include "kernels/cpu/block_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/float16.h"
#include "kernels/cpu/bf16_product.h"
#include "kernels/cpu/bf16_tiles.h"
#include "kernels/cpu/narrow_pairs.h"
#include "kernels/cpu/narrow_product.h"
#include "kernels/cpu/narrow_tiles.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace block_product_test {

using ::testing::Bool;
using ::testing::Combine;
using ::testing::Values;
using namespace zinc::test;

struct Kind {
  std::string_view name;
  bool (*fits)(const cpu::BlockShape& shape);
  cpu::BlockProductPtr (*make)(const cpu::BlockShape& shape);
};

bool is_narrow(const cpu::BlockShape& shape) {
  return shape.m <= cpu::kMostNarrowRows && !shape.transpose_a;
}

constexpr Kind kDot{"dot", [](const cpu::BlockShape& s) { return cpu::is_bf16_product(s.dtype); },
                    cpu::make_bf16_dot_product};
constexpr Kind kTiles{"tiles", [](const cpu::BlockShape&) { return cpu::has_bf16_tiles(); },
                      cpu::make_bf16_tile_product};
constexpr Kind kNarrowPairs{
    "narrow_pairs", [](const cpu::BlockShape& s) { return is_narrow(s) && cpu::fits_pairs(s); },
    cpu::make_pairs_product};
constexpr Kind kNarrowTiles{
    "narrow_tiles", [](const cpu::BlockShape& s) { return is_narrow(s) && cpu::fits_tiles(s); },
    cpu::make_tiled_product};

struct Extents {
  int64_t m, n, k;
};
// Edges of tiles, panels and vectors; k odd, in stretches, in parts.
constexpr Extents kExtents[] = {{1, 1, 1},     {33, 15, 31},   {9, 49, 33},   {70, 113, 40},
                                {64, 96, 256}, {34, 50, 1537}, {40, 64, 512}, {1, 34, 4099},
                                {2, 70, 45},   {3, 7, 96},     {4, 64, 64},   {5, 33, 66},
                                {6, 37, 2051}, {7, 100, 130},  {8, 66, 2100}};

constexpr int64_t kPadding = 5;  // elements past each row of c

// A product of random operands.
struct Problem {
  Kind kind;
  Extents e;
  bool transpose_a, transpose_b;
  HostArray a = HostArray::random(transpose_a ? Shape{e.k, e.m} : Shape{e.m, e.k}, DType::bf16, 1);
  HostArray b = HostArray::random(transpose_b ? Shape{e.n, e.k} : Shape{e.k, e.n}, DType::bf16, 2);
  HostArray c = HostArray::strided({e.m, e.n}, DType::f32, kPadding);

  cpu::BlockShape shape(bool accumulate = false) const {
    return {.m = e.m,
            .n = e.n,
            .k = e.k,
            .lda = transpose_a ? e.m : e.k,
            .ldb = transpose_b ? e.k : e.n,
            .ldc = e.n + kPadding,
            .dtype = DType::bf16,
            .transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .accumulate = accumulate};
  }
  float* sums() const { return c.on_host().data_as<float>(); }
};

const uint16_t* elements(const HostArray& x) {
  return static_cast<const uint16_t*>(x.on_host().data());
}

// A product that may run, with its scratch.
struct Made {
  Made(const Kind& kind, const cpu::BlockShape& shape)
      : product(kind.make(shape)), bytes(static_cast<size_t>(product->scratch_bytes())) {}
  std::byte* scratch() const { return bytes.get(); }

  cpu::BlockProductPtr product;
  GuardedBytes bytes;
};

// c = op(a) op(b).
HostArray plain(Problem p) {
  const Made made(p.kind, p.shape());
  made.product->run(elements(p.a), elements(p.b), p.sums(), made.scratch());
  return p.c;
}

// c is `before` + op(a) op(b), within the bound of a sum of k terms in any order.
void expect_sums(const Problem& p, const HostArray& c, double before) {
  const auto [m, n, k] = p.e;
  const std::vector<double> a = p.a.values(), b = p.b.values(), got = c.values();
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = before, size = std::abs(before);
      for (int64_t q = 0; q < k; ++q) {
        const double term = a[static_cast<size_t>(p.transpose_a ? q * m + i : i * k + q)] *
                            b[static_cast<size_t>(p.transpose_b ? j * k + q : q * n + j)];
        sum += term;
        size += std::abs(term);
      }
      const double bound = static_cast<double>(k + 1) * epsilon_of(DType::f32) * size;
      ASSERT_NEAR(got[static_cast<size_t>(i * n + j)], sum, bound) << "at " << i << ", " << j;
    }
  }
}

class BlockProducts : public ::testing::TestWithParam<std::tuple<Kind, bool, bool>> {
 protected:
  // Calls `body` for each problem that this CPU has the kind for, and that the kind takes.
  static void for_each_problem(const std::function<void(Problem&)>& body) {
    const auto [kind, transpose_a, transpose_b] = GetParam();
    int64_t problems = 0;
    for (const Extents& e : kExtents) {
      SCOPED_TRACE(::testing::Message() << e.m << " x " << e.n << " x " << e.k);
      Problem problem{.kind = kind, .e = e, .transpose_a = transpose_a, .transpose_b = transpose_b};
      if (!kind.fits(problem.shape())) continue;
      ++problems;
      body(problem);
    }
    if (problems == 0) GTEST_SKIP() << "this CPU has no such instruction";
  }
};
// The kinds that round their output.
class RoundingProducts : public BlockProducts {};

TEST_P(BlockProducts, SumsAreThoseOfF64) {
  for_each_problem([](Problem& p) { expect_sums(p, plain(p), 0.0); });
}

TEST_P(BlockProducts, Accumulating_AddsToWhatWasThere) {
  for_each_problem([](Problem& p) {
    p.c.set_all(0.75);
    const Made made(p.kind, p.shape(true));
    made.product->run(elements(p.a), elements(p.b), p.sums(), made.scratch());
    expect_sums(p, p.c, 0.75);
  });
}

TEST_P(BlockProducts, TheSameB_IsUsedAgain) {
  for_each_problem([](Problem& p) {
    const Made made(p.kind, p.shape());
    const HostArray other = HostArray::random(p.a.shape(), DType::bf16, 3);
    made.product->run(elements(other), elements(p.b), p.sums(), made.scratch());
    made.product->run(elements(p.a), elements(p.b), p.sums(), made.scratch(), true);
    EXPECT_TRUE(same_bits(p.c, plain(p)));
  });
}

// A block of a little more than half the rows and columns has the bits of the whole one.
TEST_P(BlockProducts, BitsHangOnKAlone) {
  for_each_problem([](Problem& p) {
    const auto [m, n, k] = p.e;
    const HostArray whole = plain(p);
    cpu::BlockShape part = p.shape();
    part.m = m / 2 + 1;
    part.n = n / 2 + 1;
    if (!p.kind.fits(part)) return;
    const int64_t i = m - part.m, j = n - part.n;
    const Made made(p.kind, part);
    made.product->run(elements(p.a) + (p.transpose_a ? i : i * k),
                      elements(p.b) + (p.transpose_b ? j * k : j), p.sums(), made.scratch());
    for (int64_t r = 0; r < part.m; ++r) {
      for (int64_t col = 0; col < part.n; ++col) {
        ASSERT_EQ(p.c.at(r * n + col), whole.at((i + r) * n + j + col)) << r << ", " << col;
      }
    }
  });
}

// x, with NaN behind each row and after the last one.
HostArray between_nans(const HostArray& x) {
  const int64_t rows = x.shape()[0], cols = x.shape()[1];
  HostArray wide({rows + 1, cols + kPadding}, DType::bf16);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) wide.set(i * (cols + kPadding) + j, x.at(i * cols + j));
  }
  return wide;
}

TEST_P(BlockProducts, WhatLiesBesideTheOperands_IsNotUsed) {
  for_each_problem([](Problem& p) {
    const HostArray whole = plain(p), a = between_nans(p.a), b = between_nans(p.b);
    cpu::BlockShape shape = p.shape();
    shape.lda += kPadding;
    shape.ldb += kPadding;
    const Made made(p.kind, shape);
    made.product->run(elements(a), elements(b), p.sums(), made.scratch());
    EXPECT_TRUE(same_bits(p.c, whole));
  });
}

TEST_P(RoundingProducts, Rounded_IsTheSumRoundedWithItsBias) {
  for_each_problem([](Problem& p) {
    const HostArray whole = plain(p);
    const HostArray bias = HostArray::random({p.e.n}, DType::bf16, 4);
    const HostArray rounded = HostArray::strided({p.e.m, p.e.n}, DType::bf16, 3);
    const Made made(p.kind, p.shape());
    made.product->run_rounded(elements(p.a), elements(p.b), p.sums(), made.scratch(), false,
                              {.c = rounded.on_host().data(),
                               .ldc = p.e.n + 3,
                               .bias = bias.on_host().data(),
                               .bias_dtype = DType::bf16});
    for (int64_t i = 0; i < whole.numel(); ++i) {
      const auto sum = static_cast<float>(whole.at(i)) + static_cast<float>(bias.at(i % p.e.n));
      ASSERT_EQ(rounded.at(i), static_cast<double>(static_cast<float>(bf16(sum)))) << "at " << i;
    }
  });
}

TEST_P(BlockProducts, CausalCuts_LeaveWhatIsSeen) {
  for_each_problem([](Problem& p) {
    const auto [m, n, k] = p.e;
    for (const int64_t diagonal : {k / 3, int64_t{0}, int64_t{-3}}) {
      // Scores: of c, what is seen.
      const HostArray whole = plain(p);
      const Made made(p.kind, p.shape());
      made.product->run_causal(elements(p.a), elements(p.b), p.sums(), made.scratch(),
                               {.plane = cpu::CausalCut::Plane::c, .diagonal = diagonal});
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < std::min(n, i + diagonal + 1); ++j) {
          ASSERT_EQ(p.c.at(i * n + j), whole.at(i * n + j)) << "at " << i << ", " << j;
        }
      }
      // As for probabilities, a is [queries, keys] as stored, with zeros for hidden keys.
      const int64_t keys = p.a.shape().cols();
      for (int64_t i = 0; i < p.a.numel(); ++i) {
        if (i % keys > i / keys + diagonal) p.a.set(i, 0.0);
      }
      const HostArray of_zeros = plain(p);
      made.product->run_causal(elements(p.a), elements(p.b), p.sums(), made.scratch(),
                               {.plane = cpu::CausalCut::Plane::a, .diagonal = diagonal});
      for (int64_t i = 0; i < m * n; ++i) ASSERT_EQ(p.c.at(i), of_zeros.at(i)) << "at " << i;
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<BlockProducts::ParamType>& info) {
  const auto [kind, ta, tb] = info.param;
  return std::string(kind.name) + (ta ? "_ta" : "") + (tb ? "_tb" : "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, BlockProducts, Combine(Values(kDot, kTiles), Bool(), Bool()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Kinds, RoundingProducts, Combine(Values(kDot, kTiles), Bool(), Bool()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Narrow, BlockProducts,
                         Combine(Values(kNarrowPairs, kNarrowTiles), Values(false), Bool()),
                         name_of);

}  // namespace block_product_test
}  // namespace zinc::kernels
