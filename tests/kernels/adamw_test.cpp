#include "kernels/adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/stochastic_rounding.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace adamw_test {

using test::HostArray;
using testing::HasSubstr;

struct State {
  HostArray weights, m, v, model;
};

State make_state(int64_t n, DType dtype, DType model) {
  return {HostArray::random(Shape{n}, dtype, 1), HostArray::random(Shape{n}, dtype, 2, -0.1, 0.1),
          HostArray::random(Shape{n}, dtype, 3, 0.0, 0.01), HostArray(Shape{n}, model)};
}

AdamW args_of(const State& s, const HostArray& gradient) {
  return {.weights = s.weights, .gradient = gradient, .m = s.m, .v = s.v, .model_weights = s.model};
}

// Note [Bits of AdamW] for one element, in the arithmetic of A.
template <class A>
struct Element {
  A w, m, v;
};
template <class A>
Element<A> step(Element<A> e, A gradient, A factor, const AdamW& args) {
  const double correction1 = 1.0 - std::pow(args.beta1, double(args.step));
  const double correction2 = 1.0 - std::pow(args.beta2, double(args.step));
  A g = gradient * factor;
  const bool decays = args.weight_decay != 0.0;
  if (decays && args.mode == WeightDecay::l2) g = std::fma(A(args.weight_decay), e.w, g);
  e.m = std::fma(A(args.beta1), e.m, A(1.0 - args.beta1) * g);
  e.v = std::fma(A(args.beta2), e.v, (A(1.0 - args.beta2) * g) * g);
  const A d = std::fma(std::sqrt(e.v), A(1.0 / std::sqrt(correction2)), A(args.eps));
  if (decays && args.mode == WeightDecay::decoupled) {
    e.w = std::fma(A(-args.lr * args.weight_decay), e.w, e.w);
  }
  e.w = std::fma(A(-args.lr / correction1), e.m / d, e.w);
  return e;
}

template <class A>
void expect_step(const State& before, const State& after, const HostArray& gradient, float factor,
                 const AdamW& args) {
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    const Element<A> e = step<A>({A(before.weights.at(i)), A(before.m.at(i)), A(before.v.at(i))},
                                 A(gradient.at(i)), A(factor), args);
    ASSERT_EQ(after.weights.at(i), double(e.w)) << i;
    ASSERT_EQ(after.m.at(i), double(e.m)) << i;
    ASSERT_EQ(after.v.at(i), double(e.v)) << i;
    const HostArray rounded = HostArray::of({double(e.w)}, Shape{}, after.model.dtype());
    ASSERT_EQ(after.model.at(i), rounded.at(0)) << i;
  }
}

TEST(AdamW, EveryDTypeAndMode_FollowsTheStatedOperationsBitForBit) {
  const HostArray factor = HostArray::full(Shape{1}, DType::f32, 0.37);
  for (const DType gradient_dtype : test::kFloatDTypes) {
    const DType dtype = gradient_dtype == DType::f64 ? DType::f64 : DType::f32;
    const test::DeviceScope scope(test::device_for(dtype));
    for (const DType model : {DType::bf16, DType::f16, DType::f32}) {
      for (const int64_t n : test::kOddSizes) {
        for (const WeightDecay mode : {WeightDecay::decoupled, WeightDecay::l2}) {
          for (const double decay : {0.0, 0.1}) {
            const State before = make_state(n, dtype, model);
            State after = before;
            const HostArray gradient = HostArray::random(Shape{n}, gradient_dtype, 4);
            AdamW args = args_of(after, gradient);
            args.factor = factor;
            args.step = 7;
            args.weight_decay = decay;
            args.mode = mode;
            adamw(args, test::test_stream());
            if (dtype == DType::f64) {
              expect_step<double>(before, after, gradient, 0.37f, args);
            } else {
              expect_step<float>(before, after, gradient, 0.37f, args);
            }
          }
        }
      }
    }
  }
}

TEST(AdamW, ScalarsOnTheDevice_TakeThePlaceOfTheMembers) {
  for (const WeightDecay mode : {WeightDecay::decoupled, WeightDecay::l2}) {
    const State before = make_state(1025, DType::f32, DType::bf16);
    State after = before;
    const HostArray gradient = HostArray::random(Shape{1025}, DType::bf16, 4);
    AdamW args = args_of(after, gradient);
    args.step = 7;
    args.weight_decay = 0.1;
    args.mode = mode;
    std::vector<float> values(kNumAdamWScalars);
    adamw_scalars(args, values);
    const HostArray scalars = HostArray::of(std::vector<double>(values.begin(), values.end()),
                                            Shape{kNumAdamWScalars}, DType::f32);
    AdamW by_device = args;
    by_device.scalars = scalars;
    by_device.step = 1;
    by_device.lr = 1e9;
    by_device.weight_decay = 0.0;
    by_device.beta1 = 0.1;
    adamw(by_device, test::test_stream());
    expect_step<float>(before, after, gradient, 1.0f, args);
  }
  State wide = make_state(4, DType::f64, DType::f32);
  const HostArray gradient = HostArray::random(Shape{4}, DType::f64, 4);
  AdamW args = args_of(wide, gradient);
  const HostArray scalars(Shape{kNumAdamWScalars}, DType::f32);
  args.scalars = scalars;
  EXPECT_THAT(test::message_of_invalid([&] { adamw(args, test::test_stream()); }),
              HasSubstr("scalars on the device are for f32 weights, not f64"));
}

// Note [Moments in 16 bits], from every place in a block of random words.
TEST(AdamW, MomentsInBf16_AreRoundedByTheWordOfTheirElement) {
  const RandomKey random{.key = 0x123456789abcdefu, .counter_high = 0xfedcba9876543210u};
  for (const DType gradient_dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t n : test::kOddSizes) {
      for (const int64_t first_element : {0, 5, 1022}) {
        State before = make_state(n, DType::f32, DType::bf16);
        before.m = before.m.as(DType::bf16);
        before.v = before.v.as(DType::bf16);
        const HostArray gradient = HostArray::random(Shape{n}, gradient_dtype, 4);
        State after = before;
        AdamW args = args_of(after, gradient);
        args.step = 7;
        args.random = random;
        args.first_element = first_element;
        std::vector<float> values(kNumAdamWScalars);
        adamw_scalars(args, values);
        HostArray scalars(Shape{kNumAdamWScalars}, DType::f32);
        std::memcpy(scalars.view().data(), values.data(), values.size() * sizeof(float));
        adamw(args, test::test_stream());
        for (int64_t i = 0; i < n; ++i) {
          const Element<float> e = step<float>(
              {float(before.weights.at(i)), float(before.m.at(i)), float(before.v.at(i))},
              float(gradient.at(i)), 1.0f, args);
          const uint32_t word = random.bits(static_cast<uint64_t>(first_element + i));
          ASSERT_EQ(after.weights.at(i), double(e.w)) << i;
          ASSERT_EQ(after.m.at(i), double(round_by_chance(e.m, word))) << i;
          ASSERT_EQ(after.v.at(i), double(round_by_chance(e.v, word >> 16))) << i;
        }
        // The same with the step's scalars on the device.
        State again = before;
        AdamW by_device = args_of(again, gradient);
        by_device.random = {.key = random.key, .counter_high = 1};
        by_device.first_element = first_element;
        by_device.scalars = scalars;
        adamw(by_device, test::test_stream());
        ASSERT_TRUE(test::same_bits(again.m, after.m)) << n << ' ' << first_element;
        ASSERT_TRUE(test::same_bits(again.v, after.v)) << n << ' ' << first_element;
      }
    }
  }
}

// Elements of a slice have the words of their places in the whole.
TEST(AdamW, MomentsInBf16_OfASlice_AreRoundedAsThoseOfTheWhole) {
  const RandomKey random{.key = 0x123456789abcdefu, .counter_high = 0xfedcba9876543210u};
  struct Cut {
    Shape whole;
    int dim;
    std::vector<int64_t> sections;
  };
  for (const Cut& cut :
       {Cut{{37, 50}, 0, {37}}, Cut{{11, 41}, 1, {41}}, Cut{{40, 29}, 0, {16, 8, 16}},
        Cut{{7, 1003}, 1, {501, 251, 251}}, Cut{{9, 5}, 1, {2, 3}}, Cut{{3000}, 0, {1000, 2000}}}) {
    const int64_t n = cut.whole.numel();
    const State before = make_state(n, DType::f32, DType::bf16);
    const HostArray gradient = HostArray::random(Shape{n}, DType::f32, 4);
    State whole = before;
    whole.m = before.m.as(DType::bf16);
    whole.v = before.v.as(DType::bf16);
    const State begin = whole;
    AdamW args = args_of(whole, gradient);
    args.step = 7;
    args.random = random;
    adamw(args, test::test_stream());
    for (const int64_t count : {2, 4}) {
      for (int64_t index = 0; index < count; ++index) {
        const TensorSlice slice = TensorSlice::of(cut.whole, cut.dim, cut.sections, index, count);
        const int64_t numel = slice.shape().numel();
        // Parts of the slice, as tiles and shards cut it.
        for (const int64_t first : {int64_t{0}, numel / 3}) {
          std::vector<int64_t> places;
          slice.for_each_run(first, numel, [&](int64_t, int64_t from, int64_t length) {
            for (int64_t i = 0; i < length; ++i) places.push_back(from + i);
          });
          const auto part_of = [&](const HostArray& of) {
            std::vector<double> values;
            for (const int64_t place : places) values.push_back(of.at(place));
            return HostArray::of(values, Shape{numel - first}, of.dtype());
          };
          State part = begin;
          part.weights = part_of(begin.weights);
          part.m = part_of(begin.m);
          part.v = part_of(begin.v);
          part.model = part_of(begin.model);
          const HostArray its_gradient = part_of(gradient);
          AdamW of_part = args_of(part, its_gradient);
          of_part.step = 7;
          of_part.random = random;
          of_part.first_element = first;
          of_part.places = ElementPlaces::of(slice);
          adamw(of_part, test::test_stream());
          ASSERT_TRUE(test::same_bits(part.weights, part_of(whole.weights)));
          ASSERT_TRUE(test::same_bits(part.m, part_of(whole.m))) << index;
          ASSERT_TRUE(test::same_bits(part.v, part_of(whole.v))) << index;
        }
      }
    }
  }
}

TEST(AdamW, RoundingByChance_IsRightInTheMeanAndKeepsWhatBf16Holds) {
  for (const float x : {1.0f + 0x1p-10f, -3.14159274f, 1e-40f, 0x1.fffffep-3f}) {
    double sum = 0.0;
    for (uint32_t random = 0; random < 0x10000u; ++random) {
      const float rounded = round_by_chance(x, random);
      ASSERT_EQ(rounded, static_cast<float>(bf16(rounded)));
      sum += double{rounded};
    }
    EXPECT_EQ(sum / 0x10000, double{x});  // each of the 2^16 words once: the mean is exact
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {0.0f, -0.0f, 1.5f, infinity, -infinity}) {
    EXPECT_EQ(round_by_chance(x, 0xffffu), x);
  }
  EXPECT_TRUE(std::isnan(round_by_chance(std::bit_cast<float>(0x7fffffffu), 0xffffu)));
}

TEST(AdamW, FirstStep_MovesByTheLearningRateAgainstTheSign) {
  const test::DeviceScope scope(test::device_for(DType::f64));
  // With m = v = 0 the corrected moments are g and g^2: the step is lr * g / (|g| + eps).
  State s{HostArray::of({1.0, 1.0, 1.0}, Shape{3}, DType::f64),
          HostArray::full(Shape{3}, DType::f64, 0.0), HostArray::full(Shape{3}, DType::f64, 0.0),
          HostArray(Shape{3}, DType::f32)};
  const HostArray gradient = HostArray::of({0.5, -2.0, 0.0}, Shape{3}, DType::f64);
  AdamW args = args_of(s, gradient);
  args.lr = 0.01;
  adamw(args, test::test_stream());
  EXPECT_NEAR(s.weights.at(0), 0.99, 1e-9);
  EXPECT_NEAR(s.weights.at(1), 1.01, 1e-9);
  EXPECT_EQ(s.weights.at(2), 1.0);
}

TEST(AdamW, ManySteps_MatchTheFormulaInF64) {
  // f32 against f64 over 100 steps: each step rounds a few times, and errors do not grow faster
  // than their number because every step is of size lr.
  const int64_t n = 33;
  State narrow = make_state(n, DType::f32, DType::f32);
  State wide{narrow.weights.as(DType::f64), narrow.m.as(DType::f64), narrow.v.as(DType::f64),
             HostArray(Shape{n}, DType::f64)};
  for (int64_t t = 1; t <= 100; ++t) {
    const HostArray gradient = HostArray::random(Shape{n}, DType::f32, 100 + uint64_t(t));
    const HostArray exact = gradient.as(DType::f64);
    for (auto [state, g] : {std::pair{&narrow, &gradient}, {&wide, &exact}}) {
      const test::DeviceScope scope(test::device_for(g->dtype()));
      AdamW args = args_of(*state, *g);
      args.step = t;
      args.weight_decay = 0.01;
      adamw(args, test::test_stream());
    }
  }
  EXPECT_LE(test::relative_l2(narrow.weights, wide.weights), 100 * 0x1p-24);
}

TEST(AdamW, Skip_LeavesEveryBit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const HostArray gradient = HostArray::full(Shape{100}, DType::bf16, nan);
  const State before = make_state(100, DType::f32, DType::bf16);
  for (const double flag : {1.0, -3.0, 0.0}) {
    const HostArray skip = HostArray::full(Shape{1}, DType::i32, flag);
    State after = before;
    AdamW args = args_of(after, gradient);
    args.skip = skip;
    adamw(args, test::test_stream());
    EXPECT_EQ(test::same_bits(after.weights, before.weights), flag != 0.0);
    EXPECT_EQ(test::same_bits(after.m, before.m), flag != 0.0);
    EXPECT_EQ(test::same_bits(after.v, before.v), flag != 0.0);
    EXPECT_EQ(test::same_bits(after.model, before.model), flag != 0.0);
  }
}

TEST(AdamW, TinyMoments_KeepTheirDenormals) {
  State s = make_state(40, DType::f32, DType::f32);
  s.m.set_all(0x1p-140);
  s.v.set_all(0x1p-145);
  const State before = s;
  const HostArray gradient = HostArray::full(Shape{40}, DType::f32, 0.0);
  AdamW args = args_of(s, gradient);
  args.step = 1000;
  adamw(args, test::test_stream());
  EXPECT_GT(s.m.at(0), 0.0);
  EXPECT_GT(s.v.at(0), 0.0);
  expect_step<float>(before, s, gradient, 1.0f, args);
}

void expect_parts_and_threads_agree(DType moments) {
  const int64_t n = 50'001;
  const HostArray gradient = HostArray::random(Shape{n}, DType::bf16, 5);
  const auto make = [&] {
    State s = make_state(n, DType::f32, DType::bf16);
    s.m = s.m.as(moments);
    s.v = s.v.as(moments);
    return s;
  };
  const auto whole = [&] {
    State s = make();
    AdamW args = args_of(s, gradient);
    args.weight_decay = 0.1;
    adamw(args, test::test_stream());
    return std::vector<HostArray>{s.weights, s.m, s.v, s.model};
  };
  EXPECT_TRUE(test::same_for_all_thread_counts(whole));
  State parts = make();
  for (int64_t begin = 0; begin < n; begin += 7'777) {
    const int64_t length = std::min<int64_t>(7'777, n - begin);
    const auto part = [&](const View& view) { return view.narrow(0, begin, length); };
    adamw({.weights = part(parts.weights),
           .gradient = part(gradient.view()),
           .m = part(parts.m),
           .v = part(parts.v),
           .model_weights = part(parts.model),
           .weight_decay = 0.1,
           .first_element = begin},
          test::test_stream());
  }
  const std::vector<HostArray> expected = whole();
  EXPECT_TRUE(test::same_bits(parts.weights, expected[0]));
  EXPECT_TRUE(test::same_bits(parts.m, expected[1]));
  EXPECT_TRUE(test::same_bits(parts.v, expected[2]));
  EXPECT_TRUE(test::same_bits(parts.model, expected[3]));
}

TEST(AdamW, PartsAndThreads_SameBitsAsTheWhole) {
  expect_parts_and_threads_agree(DType::f32);
  expect_parts_and_threads_agree(DType::bf16);
}

TEST(AdamW, BadArgumentsCostAndMetaDevice) {
  State s = make_state(8, DType::f32, DType::bf16);
  const HostArray gradient(Shape{8}, DType::bf16);
  const HostArray wide(Shape{8}, DType::f64);
  const auto message = [&](const AdamW& args) {
    return test::message_of_invalid([&] { adamw(args, test::test_stream()); });
  };
  AdamW args = args_of(s, wide);
  EXPECT_THAT(message(args), HasSubstr("gradient of f64 does not go with weights of f32"));
  args = args_of(s, gradient);
  args.step = 0;
  EXPECT_THAT(message(args), HasSubstr("step counts from 1, not 0"));
  args = args_of(s, gradient);
  args.beta2 = 1.0;
  EXPECT_THAT(message(args), HasSubstr("beta2 must be in [0, 1), not 1"));
  args = args_of(s, gradient);
  args.m = s.v;
  EXPECT_THAT(message(args), HasSubstr("m and v must not overlap"));
  args = args_of(s, gradient);
  args.v = gradient;
  EXPECT_THAT(message(args), HasSubstr("m or v must be f32"));
  args = args_of(s, gradient);
  args.skip = gradient;
  EXPECT_THAT(message(args), HasSubstr("skip must be i32"));
  EXPECT_EQ(cost(args_of(s, gradient)).bytes(), 8 * (12 + 2 + 12 + 2));
  adamw({.weights = test::meta_view(Shape{8}, DType::f32),
         .gradient = test::meta_view(Shape{8}, DType::f32, 2),
         .m = test::meta_view(Shape{8}, DType::f32, 3),
         .v = test::meta_view(Shape{8}, DType::f32, 4)},
        test::test_stream());
}

}  // namespace adamw_test
}  // namespace zinc::kernels
