#include "kernels/residual_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/binary.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace residual_norm_test {

using test::HostArray;
using testing::HasSubstr;

constexpr NormKind kKinds[] = {NormKind::layer, NormKind::rms};

DType statistic_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

struct Inputs {
  HostArray x, residual, gamma, beta;
};

Inputs make_inputs(int64_t rows, int64_t cols, DType dtype) {
  return {HostArray::random(Shape{rows, cols}, dtype, 1),
          HostArray::random(Shape{rows, cols}, dtype, 2),
          HostArray::random(Shape{cols}, dtype, 3, 0.5, 1.5),
          HostArray::random(Shape{cols}, dtype, 4)};
}

struct Result {
  HostArray sum, y, mean, rstd;
};

Result empty_result(const Inputs& in) {
  const Shape rows{in.x.shape().rows()};
  const DType statistic = statistic_of(in.x.dtype());
  return {HostArray(in.x.shape(), in.x.dtype()), HostArray(in.x.shape(), in.x.dtype()),
          HostArray::full(rows, statistic, 0.0), HostArray(rows, statistic)};
}

Result fused(NormKind kind, const Inputs& in) {
  Result r = empty_result(in);
  ResidualNormForward args{.kind = kind,
                           .x = in.x,
                           .residual = in.residual,
                           .gamma = in.gamma,
                           .sum = r.sum,
                           .y = r.y,
                           .rstd = r.rstd};
  if (kind == NormKind::layer) {
    args.beta = in.beta;
    args.mean = r.mean;
  }
  residual_norm_forward(args, test::test_stream());
  return r;
}

Result composed(NormKind kind, const Inputs& in) {
  Result r = empty_result(in);
  binary({.op = BinaryOp::add, .a = in.x, .b = in.residual, .y = r.sum}, test::test_stream());
  if (kind == NormKind::layer) {
    layernorm_forward(
        {.x = r.sum, .gamma = in.gamma, .beta = in.beta, .y = r.y, .mean = r.mean, .rstd = r.rstd},
        test::test_stream());
  } else {
    rmsnorm_forward({.x = r.sum, .gamma = in.gamma, .y = r.y, .rstd = r.rstd}, test::test_stream());
  }
  return r;
}

TEST(ResidualNorm, EqualsTheCompositionBitForBit) {
  for (const NormKind kind : kKinds) {
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      for (const int64_t rows : {0, 1, 70}) {
        for (const int64_t cols : {1, 3, 17, 130, 768, 1023, 1025, 16500}) {
          if (rows > 1 && cols > 2000) continue;
          const Inputs in = make_inputs(rows, cols, dtype);
          const Result got = fused(kind, in);
          const Result expected = composed(kind, in);
          ASSERT_TRUE(test::same_bits(got.sum, expected.sum)) << name_of(dtype) << cols;
          ASSERT_TRUE(test::same_bits(got.y, expected.y)) << name_of(dtype) << cols;
          ASSERT_TRUE(test::same_bits(got.mean, expected.mean)) << name_of(dtype) << cols;
          ASSERT_TRUE(test::same_bits(got.rstd, expected.rstd)) << name_of(dtype) << cols;
        }
      }
    }
  }
}

TEST(ResidualNorm, OutputsInThePlaceOfInputsAndStrides_SameBits) {
  for (const NormKind kind : kKinds) {
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      const Inputs in = make_inputs(9, 131, dtype);
      const Result expected = fused(kind, in);
      for (const bool sum_over_x : {true, false}) {
        HostArray x = in.x.with_padding(2);
        HostArray residual = in.residual.with_padding(3);
        residual_norm_forward({.kind = kind,
                               .x = x,
                               .residual = residual,
                               .gamma = in.gamma,
                               .beta = kind == NormKind::layer ? ConstView(in.beta) : ConstView(),
                               .sum = sum_over_x ? x : residual,
                               .y = sum_over_x ? residual : x},
                              test::test_stream());
        EXPECT_TRUE(test::same_bits(sum_over_x ? x : residual, expected.sum));
        EXPECT_TRUE(test::same_bits(sum_over_x ? residual : x, expected.y));
      }
    }
  }
}

TEST(ResidualNorm, ManyRows_SameBitsForAllThreadCounts) {
  for (const NormKind kind : kKinds) {
    const Inputs in = make_inputs(test::runs_on_cuda() ? 260 : 1500, 130, DType::bf16);
    EXPECT_TRUE(test::same_for_all_thread_counts([&] {
      const Result r = fused(kind, in);
      return std::vector<HostArray>{r.sum, r.y, r.mean, r.rstd};
    }));
  }
}

TEST(ResidualNorm, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{4, 8}, DType::bf16);
  HostArray y(Shape{4, 8}, DType::bf16);
  HostArray gamma(Shape{8}, DType::bf16);
  const auto message = [&](const ResidualNormForward& args) {
    return test::message_of_invalid([&] { residual_norm_forward(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .residual = x, .gamma = gamma, .sum = y, .y = y}),
              HasSubstr("sum and y must not be the same"));
  EXPECT_THAT(message({.kind = NormKind::rms,
                       .x = x,
                       .residual = x,
                       .gamma = gamma,
                       .beta = gamma,
                       .sum = x,
                       .y = y}),
              HasSubstr("neither beta nor mean"));
  EXPECT_THAT(message({.x = x, .residual = gamma, .gamma = gamma, .sum = x, .y = y}),
              HasSubstr("residual must have shape [4, 8]"));
  EXPECT_EQ(
      cost(ResidualNormForward{.x = x, .residual = x, .gamma = gamma, .sum = x, .y = y}).bytes(),
      4 * 64 + 16);
  const View rows = test::meta_view(Shape{4, 8}, DType::f32);
  residual_norm_forward({.x = rows,
                         .residual = rows,
                         .gamma = test::meta_view(Shape{8}, DType::f32, 2),
                         .sum = rows,
                         .y = test::meta_view(Shape{4, 8}, DType::f32, 3)},
                        test::test_stream());
}

}  // namespace residual_norm_test
}  // namespace zinc::kernels
