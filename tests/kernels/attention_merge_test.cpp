#include "kernels/attention_merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "tests/kernels/attention_inputs.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace attention_merge_test {

using namespace zinc::test;
using testing::HasSubstr;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// The same queries over parts of the keys, one part after the other, with gradients of each part
// from the merged output.
struct InParts {
  HostArray out, lse, dq, dk, dv;

  InParts(const Inputs& x, int64_t width, StreamRef stream)
      : out(x.out.shape(), x.wide), lse(x.lse.shape(), x.wide) {
    const Case& c = x.c;
    out.set_all(0.0);
    lse.set_all(kNothing);
    const DeviceScope scope(device_for(x.dtype));
    for_each_part(x, width, [&](const View& k, const View& v, const AttentionMask& mask, int64_t) {
      HostArray part(x.out.shape(), x.dtype), part_lse(x.lse.shape(), x.wide);
      attention_forward({.q = x.q(), .k = k, .v = v, .out = part, .lse = part_lse, .mask = mask},
                        stream);
      attention_merge({.part = part, .part_lse = part_lse, .out = out, .lse = lse}, stream);
    });
    const HostArray rounded = out.as(x.dtype);
    dq = HostArray(x.dq.shape(), x.wide);
    dk = HostArray(x.dk.shape(), x.wide);
    dv = HostArray(x.dv.shape(), x.wide);
    dq.set_all(0.0);
    for_each_part(
        x, width, [&](const View& k, const View& v, const AttentionMask& mask, int64_t j) {
          const Shape keys{c.B, k.dim(1), c.G, c.D};
          HostArray part_q(x.dq.shape(), x.dtype), part_k(keys, x.dtype), part_v(keys, x.dtype);
          attention_backward({.q = x.q(),
                              .k = k,
                              .v = v,
                              .out = rounded,
                              .lse = lse,
                              .dout = x.dout(),
                              .dq = part_q,
                              .dk = part_k,
                              .dv = part_v,
                              .mask = mask},
                             stream);
          for (int64_t i = 0; i < dq.numel(); ++i) dq.set(i, dq.at(i) + part_q.at(i));
          for (int64_t b = 0; b < c.B; ++b) {
            for (int64_t i = 0; i < k.dim(1) * c.G * c.D; ++i) {
              const int64_t from = b * k.dim(1) * c.G * c.D + i;
              const int64_t to = (b * c.Tk + j) * c.G * c.D + i;
              dk.set(to, part_k.at(from));
              dv.set(to, part_v.at(from));
            }
          }
        });
  }

  // visit(k, v, mask, first key)
  template <class Visit>
  static void for_each_part(const Inputs& x, int64_t width, const Visit& visit) {
    for (int64_t j = 0; j < x.c.Tk; j += width) {
      const int64_t count = std::min(width, x.c.Tk - j);
      AttentionMask mask = x.mask;
      mask.origin = {.query = x.c.Tk - x.c.Tq, .key = j};
      visit(x.k().narrow(1, j, count), x.v().narrow(1, j, count), mask, j);
    }
  }
};

constexpr Case kCases[] = {
    {"Causal", 2, 60, 70, 4, 2, 16, kCausal},
    {"Full", 2, 60, 70, 2, 2, 8, 0},
    {"Lengths", 3, 40, 40, 2, 1, 16, kCausal | kLengths},
    {"Documents", 2, 90, 90, 2, 2, 16, kCausal | kDocuments},
    {"Alibi", 1, 50, 90, 2, 2, 12, kCausal | kAlibi},
    {"Window", 1, 70, 150, 2, 1, 16, kCausal | kWindow},
};

class AttentionMergeOver : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, AttentionMergeOver, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AttentionMergeOver, PartsOfTheKeys_GiveWhatAllGive) {
  for (const DType dtype : kFloatDTypes) {
    for (const int64_t width : {24, 64}) {
      CpuContext context;
      Inputs x(GetParam(), dtype);
      Inputs exact = x.in_f64();
      exact.forward(context.stream());
      exact.backward(context.stream());
      const InParts parts(x, width, context.stream());
      // The bound of Attention.EveryType_MatchesF64; the outputs of the parts are rounded as well.
      const double scores =
          16 * epsilon_of(DType::f32) * std::sqrt(static_cast<double>(x.c.D + x.c.Tk));
      const double bound = dtype == DType::f64 ? 1e-13 : 3 * epsilon_of(dtype) + scores;
      EXPECT_LE(relative_l2(parts.out, exact.out), bound) << to_string(dtype);
      EXPECT_LE(max_relative_error(parts.lse, exact.lse, 1.0), dtype == DType::f64 ? 1e-13 : scores)
          << to_string(dtype);
      EXPECT_LE(relative_l2(parts.dv, exact.dv), 2 * bound) << to_string(dtype);
      EXPECT_LE(relative_l2(parts.dq, exact.dq), 4 * bound) << to_string(dtype);
      EXPECT_LE(relative_l2(parts.dk, exact.dk), 4 * bound) << to_string(dtype);
    }
  }
}

TEST(AttentionMerge, WhatSeesNothing_AddsNothing) {
  for (const DType dtype : kFloatDTypes) {
    const DeviceScope scope(device_for(dtype));
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const HostArray part = HostArray::full({1, 3, 1, 2}, dtype, 4.0);
    const HostArray part_lse = HostArray::of({kNothing, 0.5, kNothing}, {1, 1, 3}, wide);
    HostArray out = HostArray::of({1, 2, 0, 0, 0, 0}, {1, 3, 1, 2}, wide);
    HostArray lse = HostArray::of({0.25, kNothing, kNothing}, {1, 1, 3}, wide);
    attention_merge({.part = part, .part_lse = part_lse, .out = out, .lse = lse}, test_stream());
    EXPECT_EQ(out.values(), (std::vector<double>{1, 2, 4, 4, 0, 0})) << to_string(dtype);
    EXPECT_EQ(lse.values(), (std::vector<double>{0.25, 0.5, kNothing})) << to_string(dtype);
  }
}

TEST(AttentionMerge, Bits_DoNotDependOnThreads) {
  const Shape shape{2, 70, 3, 20};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const DeviceScope scope(device_for(dtype));
    const HostArray part = HostArray::random(shape, dtype, 1);
    const HostArray part_lse = HostArray::random({2, 3, 70}, DType::f32, 2);
    EXPECT_TRUE(same_for_all_thread_counts([&] {
      HostArray out = HostArray::random(shape, DType::f32, 3);
      HostArray lse = HostArray::random({2, 3, 70}, DType::f32, 4);
      attention_merge({.part = part, .part_lse = part_lse, .out = out, .lse = lse}, test_stream());
      return std::vector<HostArray>{out, lse};
    }));
  }
}

TEST(AttentionMerge, BadArgumentsCostAndMetaDevice) {
  const HostArray part({1, 2, 3, 4}, DType::bf16), lse({1, 3, 2}, DType::f32);
  HostArray out({1, 2, 3, 4}, DType::f32), total({1, 3, 2}, DType::f32);
  const auto message = [](const AttentionMerge& args) {
    return message_of_invalid([&] { attention_merge(args, test_stream()); });
  };
  EXPECT_THAT(message({.part = lse, .part_lse = lse, .out = out, .lse = total}),
              HasSubstr("part must be [batch, queries, heads, head size]"));
  EXPECT_THAT(message({.part = part, .part_lse = lse, .out = part, .lse = total}),
              HasSubstr("out must be f32"));
  EXPECT_THAT(message({.part = part, .part_lse = out, .out = out, .lse = total}),
              HasSubstr("part_lse"));
  EXPECT_THAT(message({.part = part, .part_lse = lse, .out = out, .lse = lse}),
              HasSubstr("must not overlap"));
  EXPECT_EQ(cost(AttentionMerge{.part = part, .part_lse = lse, .out = out, .lse = total}).bytes(),
            48 + 24 + 2 * (96 + 24));
  attention_merge({.part = meta_view({1, 2, 3, 4}, DType::bf16),
                   .part_lse = meta_view({1, 3, 2}, DType::f32, 2),
                   .out = meta_view({1, 2, 3, 4}, DType::f32, 3),
                   .lse = meta_view({1, 3, 2}, DType::f32, 4)},
                  test_stream());
}

}  // namespace attention_merge_test
}  // namespace zinc::kernels
