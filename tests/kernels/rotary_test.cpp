#include "kernels/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace rotary_test {

using test::HostArray;
using testing::HasSubstr;

constexpr RotaryLayout kLayouts[] = {RotaryLayout::half_split, RotaryLayout::interleaved};

struct Table {
  HostArray cos, sin;
};

Table make_table(int64_t positions, int64_t rotary_dims, DType dtype, double theta = 10000.0,
                 int64_t first = 0) {
  const DType table_dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
  Table t{HostArray(Shape{positions, rotary_dims / 2}, table_dtype),
          HostArray(Shape{positions, rotary_dims / 2}, table_dtype)};
  const test::DeviceScope host(kCpu);
  fill_rotary_table(rotary_frequencies(rotary_dims, theta), first, t.cos, t.sin);
  return t;
}

// The rotation by its definition, in f64.
HostArray turned(const HostArray& x, const std::vector<int64_t>& positions, int64_t rotary_dims,
                 RotaryLayout layout, double theta) {
  HostArray y = x;
  const Shape& s = x.shape();
  for (int64_t i = 0; i < s[0] * s[1] * s[2]; ++i) {
    const auto position = static_cast<double>(positions[static_cast<size_t>(i / s[2])]);
    for (int64_t j = 0; j < rotary_dims / 2; ++j) {
      const double angle = position * std::pow(theta, -2.0 * double(j) / double(rotary_dims));
      const bool half = layout == RotaryLayout::half_split;
      const int64_t u = i * s[3] + (half ? j : 2 * j);
      const int64_t v = u + (half ? rotary_dims / 2 : 1);
      y.set(u, x.at(u) * std::cos(angle) - x.at(v) * std::sin(angle));
      y.set(v, x.at(u) * std::sin(angle) + x.at(v) * std::cos(angle));
    }
  }
  return y;
}

std::vector<int64_t> counted_positions(int64_t batch, int64_t length, int64_t start) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < batch * length; ++i) positions.push_back(start + i % length);
  return positions;
}

TEST(Rotary, EveryDTypeLayoutAndPartialDims_IsTheRotationByItsDefinition) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const RotaryLayout layout : kLayouts) {
      for (const auto& [head, rotary_dims] :
           {std::pair<int64_t, int64_t>{2, 2}, {6, 6}, {64, 64}, {80, 32}, {34, 34}}) {
        const int64_t start = 3;
        const HostArray q = HostArray::random(Shape{2, 5, 3, head}, dtype, 1);
        const HostArray k = HostArray::random(Shape{2, 5, 1, head}, dtype, 2);
        const Table t = make_table(start + 5, rotary_dims, dtype);
        HostArray q_out = q.with_padding(2);
        HostArray k_out = k;
        rotary(
            {.q = q_out, .k = k_out, .cos = t.cos, .sin = t.sin, .start = start, .layout = layout},
            test::test_stream());
        const std::vector<int64_t> positions = counted_positions(2, 5, start);
        // cos and sin rounded to f32, two products and a sum: 2 units of the f32 result's terms.
        const double tolerance =
            dtype == DType::f64 ? 1e-15 : test::epsilon_of(dtype) + 4 * 0x1p-24;
        for (const auto& [got, x] : {std::pair{&q_out, &q}, {&k_out, &k}}) {
          const HostArray expected =
              turned(x->as(DType::f64), positions, rotary_dims, layout, 10000.0);
          EXPECT_LE(test::relative_l2(*got, expected), tolerance) << name_of(dtype) << head;
          for (int64_t i = 0; i < x->numel(); ++i) {
            if (i % head < rotary_dims) continue;
            ASSERT_EQ(got->at(i), x->at(i));
          }
        }
      }
    }
  }
}

TEST(Rotary, GivenPositions_SelectRowsOfTheTable) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const DType ids : {DType::i32, DType::i64}) {
      const HostArray positions = HostArray::of({4, 0, 1, 0, 1, 2}, Shape{2, 3}, ids);
      const HostArray q = HostArray::random(Shape{2, 3, 2, 8}, dtype, 3);
      const Table t = make_table(5, 8, dtype);
      HostArray got = q;
      rotary({.q = got, .cos = t.cos, .sin = t.sin, .positions = positions}, test::test_stream());
      const HostArray expected =
          turned(q.as(DType::f64), {4, 0, 1, 0, 1, 2}, 8, RotaryLayout::half_split, 10000.0);
      EXPECT_LE(test::relative_l2(got, expected), dtype == DType::f64 ? 1e-15 : 5 * 0x1p-24);
    }
  }
}

TEST(Rotary, Inverse_IsTheGradient) {
  const test::DeviceScope scope(kCpu);
  for (const RotaryLayout layout : kLayouts) {
    const HostArray x = HostArray::random(Shape{1, 3, 2, 8}, DType::f64, 4);
    const HostArray dy = HostArray::random(x.shape(), DType::f64, 5);
    const Table t = make_table(3, 6, DType::f64);
    const HostArray numeric = test::numeric_gradient(x, dy, [&](const HostArray& at) {
      HostArray y = at;
      rotary({.q = y, .cos = t.cos, .sin = t.sin, .layout = layout}, test::test_stream());
      return y;
    });
    HostArray dx = dy;
    rotary({.q = dx, .cos = t.cos, .sin = t.sin, .layout = layout, .inverse = true},
           test::test_stream());
    EXPECT_LE(test::relative_l2(dx, numeric), test::kGradientTolerance);
  }
}

TEST(Rotary, Inverse_TurnsBack) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const RotaryLayout layout : kLayouts) {
      const HostArray x = HostArray::random(Shape{2, 9, 2, 24}, dtype, 8);
      const Table t = make_table(9, 20, dtype);
      HostArray y = x;
      rotary({.q = y, .cos = t.cos, .sin = t.sin, .layout = layout}, test::test_stream());
      EXPECT_GT(test::relative_l2(y, x), 0.1);
      rotary({.q = y, .cos = t.cos, .sin = t.sin, .layout = layout, .inverse = true},
             test::test_stream());
      // Two turns, each with one rounding to dtype and a few of the accumulator's.
      const double wide = test::epsilon_of(dtype == DType::f64 ? DType::f64 : DType::f32);
      EXPECT_LE(test::relative_l2(y, x), 2 * (test::epsilon_of(dtype) + 4 * wide));
    }
  }
}

TEST(Rotary, ViewsIntoOneQkvBuffer_SameBitsAsArraysOfTheirOwn) {
  const int64_t heads = 4, kv = 2, head = 16;
  const HostArray qkv = HostArray::random(Shape{2, 6, (heads + 2 * kv) * head}, DType::bf16, 6);
  const auto view_of = [&](const HostArray& buffer, int64_t first, int64_t count) {
    const View part = buffer.view().narrow(-1, first * head, count * head);
    return View(part.data(), part.dtype(), Shape{2, 6, count, head},
                Strides{part.stride(0), part.stride(1), head, 1}, part.device(), Tier::device);
  };
  const Table t = make_table(6, head, DType::bf16);
  HostArray inout = qkv;
  rotary(
      {.q = view_of(inout, 0, heads), .k = view_of(inout, heads, kv), .cos = t.cos, .sin = t.sin},
      test::test_stream());
  HostArray alone(Shape{2, 6, heads + kv, head}, DType::bf16);
  const int64_t width = (heads + 2 * kv) * head;
  for (int64_t i = 0; i < alone.numel(); ++i) {
    alone.set(i, qkv.at(i / ((heads + kv) * head) * width + i % ((heads + kv) * head)));
  }
  rotary({.q = alone, .cos = t.cos, .sin = t.sin}, test::test_stream());
  for (int64_t i = 0; i < qkv.numel(); ++i) {
    const int64_t column = i % width;
    const bool is_v = column >= (heads + kv) * head;
    ASSERT_EQ(inout.at(i), is_v ? qkv.at(i) : alone.at(i / width * (heads + kv) * head + column));
  }
}

TEST(Rotary, Tokens_SameBitsForAllThreadCounts) {
  const Table t = make_table(512, 64, DType::bf16);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    HostArray q = HostArray::random(Shape{2, 512, 3, 64}, DType::bf16, 7);
    rotary({.q = q, .cos = t.cos, .sin = t.sin}, test::test_stream());
    return std::vector<HostArray>{q};
  }));
}

TEST(RotaryFrequencies, LinearAndLlama3_FollowTheirFormulas) {
  const std::vector<double> plain = rotary_frequencies(64, 500000.0);
  ASSERT_EQ(plain.size(), 32u);
  EXPECT_EQ(plain[0], 1.0);
  EXPECT_NEAR(plain[16], 1.0 / std::sqrt(500000.0), 1e-18);

  const std::vector<double> linear =
      rotary_frequencies(64, 500000.0, {.kind = RotaryScaling::Kind::linear, .factor = 4.0});
  for (size_t j = 0; j < 32; ++j) EXPECT_EQ(linear[j], plain[j] / 4.0);

  // Llama-3.2: factor 32, low 1, high 4, 8192 positions.
  const std::vector<double> scaled = rotary_frequencies(64, 500000.0,
                                                        {.kind = RotaryScaling::Kind::llama3,
                                                         .factor = 32.0,
                                                         .low_freq_factor = 1.0,
                                                         .high_freq_factor = 4.0,
                                                         .original_max_positions = 8192.0});
  int kept = 0, divided = 0, between = 0;
  for (size_t j = 0; j < 32; ++j) {
    const double turns = 8192.0 * plain[j] / (2.0 * std::numbers::pi);  // over the old context
    if (turns > 4.0) {
      EXPECT_EQ(scaled[j], plain[j]);
      ++kept;
    } else if (turns < 1.0) {
      EXPECT_EQ(scaled[j], plain[j] / 32.0);
      ++divided;
    } else {
      const double s = (turns - 1.0) / 3.0;
      EXPECT_NEAR(scaled[j], ((1.0 - s) / 32.0 + s) * plain[j], 1e-15 * plain[j]);
      EXPECT_GT(scaled[j], plain[j] / 32.0);
      EXPECT_LT(scaled[j], plain[j]);
      ++between;
    }
  }
  EXPECT_EQ(kept + divided + between, 32);
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(between, 0);
}

TEST(RotaryTable, StartsAtTheFirstPosition) {
  const Table all = make_table(20, 8, DType::f64);
  const Table tail = make_table(5, 8, DType::f64, 10000.0, 15);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(tail.cos.at(i), all.cos.at(15 * 4 + i));
    EXPECT_EQ(tail.sin.at(i), all.sin.at(15 * 4 + i));
  }
}

TEST(Rotary, BadArguments_NameWhatIsWrong) {
  HostArray q(Shape{1, 4, 2, 8}, DType::f32);
  HostArray k(Shape{1, 4, 1, 6}, DType::f32);
  const Table t = make_table(4, 8, DType::f32);
  const Table wide = make_table(4, 10, DType::f32);
  const HostArray positions = HostArray::of({0, 1, 7, 2}, Shape{1, 4}, DType::i32);
  const auto message = [&](const Rotary& args) {
    return test::message_of_invalid([&] { rotary(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.q = q, .k = k, .cos = t.cos, .sin = t.sin}),
              HasSubstr("q and k must agree"));
  EXPECT_THAT(message({.q = q, .cos = wide.cos, .sin = wide.sin}),
              HasSubstr("10 rotary dimensions does not fit heads of 8"));
  EXPECT_THAT(message({.q = q, .cos = t.cos, .sin = t.sin, .start = 1}),
              HasSubstr("positions 1 to 4 are outside the table of 4"));
  if (test::runs_on_cuda()) {  // Note [Indices outside their range on a GPU]
    q.set_all(1.0);
    EXPECT_EQ(message({.q = q, .cos = t.cos, .sin = t.sin, .positions = positions}), "");
    for (int64_t i = 0; i < q.numel(); ++i) EXPECT_EQ(std::isnan(q.at(i)), i / 16 == 2) << i;
  } else {
    EXPECT_THAT(message({.q = q, .cos = t.cos, .sin = t.sin, .positions = positions}),
                HasSubstr("position 7 of token 2 is outside"));
  }
  EXPECT_THAT(test::message_of_invalid([] { rotary_frequencies(7, 10000.0); }), HasSubstr("even"));
}

TEST(Rotary, CostAndMetaDevice) {
  HostArray q(Shape{1, 4, 2, 8}, DType::f32);
  const Table t = make_table(4, 4, DType::f32);
  EXPECT_EQ(cost(Rotary{.q = q, .cos = t.cos, .sin = t.sin}).bytes(),
            2 * 4 * 2 * 4 * 4 + 2 * 4 * 2 * 4);
  const View nowhere = test::meta_view(Shape{1, 4, 2, 8}, DType::f32);
  const View table = test::meta_view(Shape{4, 4}, DType::f32, 2);
  rotary({.q = nowhere, .cos = table, .sin = table}, test::test_stream());
}

}  // namespace rotary_test
}  // namespace zinc::kernels
