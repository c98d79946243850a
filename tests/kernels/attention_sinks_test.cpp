#include "kernels/attention_sinks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "tests/kernels/attention_inputs.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace attention_sinks_test {

using namespace zinc::test;
using testing::HasSubstr;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

HostArray sinks_of(const Inputs& x) { return HostArray::random({x.c.H}, x.wide, 9, -1, 3); }

// What the definition says, in f64: attention to one more key with the score of the sink and a
// value of zeros. The gradient of the sink is that of its column of the bias.
struct WithOneMoreKey {
  HostArray out, lse, dq, dk, dv, dsinks;

  explicit WithOneMoreKey(const Inputs& x, const HostArray& sinks, StreamRef stream)
      : out({x.c.B, x.c.Tq, x.c.H, x.c.D}, DType::f64),
        lse({x.c.B, x.c.H, x.c.Tq}, DType::f64),
        dq(out),
        dsinks({x.c.H}, DType::f64) {
    const Case& c = x.c;
    const int64_t keys = c.Tk + 1;
    HostArray k({c.B, keys, c.G, c.D}, DType::f64), v = k;
    k.set_all(0.0);
    v.set_all(0.0);
    const int64_t row = c.G * c.D;
    const HostArray own_k = copy_of(x.k()), own_v = copy_of(x.v());
    for (int64_t b = 0; b < c.B; ++b) {
      for (int64_t i = 0; i < c.Tk * row; ++i) {
        k.set(b * keys * row + i, own_k.at(b * c.Tk * row + i));
        v.set(b * keys * row + i, own_v.at(b * c.Tk * row + i));
      }
    }
    HostArray bias({1, c.H, c.Tq, keys}, DType::f64), dbias = bias;
    for (int64_t h = 0; h < c.H; ++h) {
      for (int64_t i = 0; i < c.Tq; ++i) {
        for (int64_t j = 0; j < keys; ++j) {
          const bool seen = j < c.Tk && (!x.mask.causal || j <= i + c.Tk - c.Tq);
          bias.set((h * c.Tq + i) * keys + j, j == c.Tk ? sinks.at(h) : seen ? 0.0 : kNothing);
        }
      }
    }
    dk = dv = HostArray(k.shape(), DType::f64);
    const HostArray q = copy_of(x.q()), dout = copy_of(x.dout());
    const AttentionMask mask{.causal = false, .bias = bias};
    attention_forward({.q = q, .k = k, .v = v, .out = out, .lse = lse, .mask = mask}, stream);
    attention_backward({.q = q,
                        .k = k,
                        .v = v,
                        .out = out,
                        .lse = lse,
                        .dout = dout,
                        .dq = dq,
                        .dk = dk,
                        .dv = dv,
                        .dbias = dbias,
                        .mask = mask},
                       stream);
    for (int64_t h = 0; h < c.H; ++h) {
      double sum = 0.0;
      for (int64_t i = 0; i < c.Tq; ++i) sum += dbias.at((h * c.Tq + i) * keys + c.Tk);
      dsinks.set(h, sum);
    }
  }

  static HostArray copy_of(const View& view) {
    HostArray copy(view.shape(), DType::f64);
    const Shape& s = view.shape();
    for (int64_t b = 0; b < s[0]; ++b) {
      for (int64_t t = 0; t < s[1]; ++t) {
        for (int64_t h = 0; h < s[2]; ++h) {
          for (int64_t d = 0; d < s[3]; ++d) {
            copy.set(((b * s[1] + t) * s[2] + h) * s[3] + d,
                     view.data_as<double>()[b * view.stride(0) + t * view.stride(1) +
                                            h * view.stride(2) + d]);
          }
        }
      }
    }
    return copy;
  }
};

constexpr Case kCases[] = {
    {"Causal", 2, 40, 50, 4, 2, 16, kCausal},
    {"Full", 2, 33, 20, 2, 2, 8, 0},
    {"OneQuery", 3, 1, 40, 3, 1, 12, kCausal},
};

class AttentionSinksOver : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, AttentionSinksOver, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AttentionSinksOver, AreOneMoreKeyWithoutAValue) {
  for (const DType dtype : kFloatDTypes) {
    CpuContext context;
    Inputs x(GetParam(), dtype);
    const HostArray sinks = sinks_of(x);
    const WithOneMoreKey exact(x.in_f64(), sinks.as(DType::f64), context.stream());
    HostArray dsinks({x.c.H}, x.wide);
    dsinks.set_all(std::nan(""));
    {
      const DeviceScope scope(device_for(dtype));
      attention_forward(
          {.q = x.q(), .k = x.k(), .v = x.v(), .out = x.out, .lse = x.lse, .mask = x.mask},
          context.stream());
      attention_sinks({.sinks = sinks, .out = x.out, .lse = x.lse}, context.stream());
      attention_sinks_backward(
          {.sinks = sinks, .out = x.out, .lse = x.lse, .dout = x.dout(), .dsinks = dsinks},
          context.stream());
    }
    // The bound of Attention.EveryType_MatchesF64; the output is rounded twice.
    const double scores =
        16 * epsilon_of(DType::f32) * std::sqrt(static_cast<double>(x.c.D + x.c.Tk));
    const double bound = dtype == DType::f64 ? 1e-13 : 3 * epsilon_of(dtype) + scores;
    EXPECT_LE(relative_l2(x.out, exact.out), bound) << to_string(dtype);
    EXPECT_LE(max_relative_error(x.lse, exact.lse, 1.0), dtype == DType::f64 ? 1e-13 : scores)
        << to_string(dtype);
    EXPECT_LE(relative_l2(dsinks, exact.dsinks), 4 * bound) << to_string(dtype);
  }
}

TEST(AttentionSinks, OfAQueryThatSeesNothing_GiveZeros) {
  for (const DType dtype : kFloatDTypes) {
    const DeviceScope scope(device_for(dtype));
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const HostArray sinks = HostArray::of({0.5, kNothing}, {2}, wide);
    HostArray out = HostArray::of({0, 0, 0, 0}, {1, 1, 2, 2}, dtype);
    HostArray lse = HostArray::of({kNothing, kNothing}, {1, 2, 1}, wide);
    attention_sinks({.sinks = sinks, .out = out, .lse = lse}, test_stream());
    EXPECT_EQ(out.values(), (std::vector<double>{0, 0, 0, 0})) << to_string(dtype);
    EXPECT_EQ(lse.values(), (std::vector<double>{0.5, kNothing})) << to_string(dtype);
    const HostArray dout = HostArray::of({1, 2, 3, 4}, {1, 1, 2, 2}, dtype);
    HostArray dsinks = HostArray::full({2}, wide, 7.0);
    attention_sinks_backward(
        {.sinks = sinks, .out = out, .lse = lse, .dout = dout, .dsinks = dsinks}, test_stream());
    EXPECT_EQ(dsinks.at(0), 0.0) << to_string(dtype);
    EXPECT_EQ(dsinks.at(1), 0.0) << to_string(dtype);
  }
}

TEST(AttentionSinks, Bits_DoNotDependOnThreads) {
  const Shape shape{2, 70, 3, 20};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const DeviceScope scope(device_for(dtype));
    const HostArray sinks = HostArray::random({3}, DType::f32, 1);
    const HostArray dout = HostArray::random(shape, dtype, 2);
    EXPECT_TRUE(same_for_all_thread_counts([&] {
      HostArray out = HostArray::random(shape, dtype, 3);
      HostArray lse = HostArray::random({2, 3, 70}, DType::f32, 4);
      HostArray dsinks({3}, DType::f32);
      attention_sinks({.sinks = sinks, .out = out, .lse = lse}, test_stream());
      attention_sinks_backward(
          {.sinks = sinks, .out = out, .lse = lse, .dout = dout, .dsinks = dsinks}, test_stream());
      return std::vector<HostArray>{out, lse, dsinks};
    }));
  }
}

TEST(AttentionSinks, BadArgumentsCostAndMetaDevice) {
  HostArray out({1, 2, 3, 4}, DType::bf16), lse({1, 3, 2}, DType::f32);
  const HostArray sinks({3}, DType::f32);
  const auto message = [](const AttentionSinks& args) {
    return message_of_invalid([&] { attention_sinks(args, test_stream()); });
  };
  EXPECT_THAT(message({.sinks = sinks, .out = lse, .lse = lse}),
              HasSubstr("out must be [batch, queries, heads, head size]"));
  EXPECT_THAT(message({.sinks = HostArray({2}, DType::f32), .out = out, .lse = lse}),
              HasSubstr("sinks"));
  EXPECT_THAT(message({.sinks = sinks, .out = out, .lse = out}), HasSubstr("lse"));
  EXPECT_THAT(message_of_invalid([&] {
                attention_sinks_backward({.sinks = sinks,
                                          .out = out,
                                          .lse = lse,
                                          .dout = HostArray({1, 2, 3, 4}, DType::f32),
                                          .dsinks = HostArray({3}, DType::f32)},
                                         test_stream());
              }),
              HasSubstr("dout"));
  EXPECT_EQ(cost(AttentionSinks{.sinks = sinks, .out = out, .lse = lse}).bytes(),
            12 + 2 * (48 + 24));
  attention_sinks({.sinks = meta_view({3}, DType::f32, 1),
                   .out = meta_view({1, 2, 3, 4}, DType::bf16, 2),
                   .lse = meta_view({1, 3, 2}, DType::f32, 3)},
                  test_stream());
}

}  // namespace attention_sinks_test
}  // namespace zinc::kernels
