#include "kernels/element_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/stochastic_rounding.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace element_update_test {

using test::HostArray;
using testing::HasSubstr;

constexpr UpdateRule kRules[] = {
#define ZINC_ROW(name, ...) UpdateRule::name,
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
};

struct State {
  HostArray weights, model;     // `model`: with a rule of directions the direction
  std::vector<HostArray> kept;  // the rule's states
};

// States lie in [0, 0.01): squares are among them, which onebit sees as 0 too. The last one of
// amsgrad is sometimes the largest.
State make_state(UpdateRule rule, int64_t n, DType dtype, DType model, DType states) {
  State state{HostArray::random(Shape{n}, dtype, 1), HostArray(Shape{n}, model), {}};
  for (int i = 0; i < num_states(rule); ++i) {
    state.kept.push_back(
        HostArray::random(Shape{n}, dtype, 2 + static_cast<uint64_t>(i), 0.0, 0.01).as(states));
  }
  if (rule == UpdateRule::onebit) {
    for (int64_t i = 3; i < n; i += 7) state.kept[1].set(i, 0.0);
  }
  return state;
}

ElementUpdate args_of(UpdateRule rule, State& s, const HostArray& gradient) {
  ElementUpdate args{.rule = rule, .gradient = gradient};
  (makes_direction(rule) ? args.direction : args.model_weights) = s.model;
  if (reads_weights(rule)) args.weights = s.weights;
  for (size_t i = 0; i < s.kept.size(); ++i) args.states[i] = s.kept[i];
  return args;
}

bool same_bits(const State& a, const State& b) {
  bool same = test::same_bits(a.weights, b.weights) && test::same_bits(a.model, b.model);
  for (size_t i = 0; i < a.kept.size(); ++i) {
    same = same && test::same_bits(a.kept[i], b.kept[i]);
  }
  return same;
}

// Note [Bits of an update] for one element, in the arithmetic of A.
template <class A>
struct Element {
  A w;  // in the end the direction, where the rule makes one
  A s[3] = {};
};
template <class A>
Element<A> step(Element<A> e, A gradient, A factor, const ElementUpdate& args) {
  const UpdateConstants& c = args.constants;
  const double correction1 = 1.0 - std::pow(c.beta1, double(args.step));
  const double correction2 = 1.0 - std::pow(c.beta2, double(args.step));
  const bool is_adam = args.rule == UpdateRule::adamw || args.rule == UpdateRule::amsgrad;
  const bool is_l2 =
      is_adam ? !c.decoupled
              : args.rule != UpdateRule::lamb && args.rule != UpdateRule::lion &&
                    args.rule != UpdateRule::onebit && args.rule != UpdateRule::running_mean &&
                    args.rule != UpdateRule::schedulefree && args.rule != UpdateRule::sgdw;
  A g = gradient * factor;
  if (c.weight_decay != 0.0 && is_l2) g = std::fma(A(c.weight_decay), e.w, g);
  const auto decay = [&] {
    if (c.weight_decay != 0.0 && !is_l2) e.w = std::fma(A(-c.lr * c.weight_decay), e.w, e.w);
  };
  switch (args.rule) {
    case UpdateRule::adagrad: {
      e.s[0] = std::fma(g, g, e.s[0]);
      const double rate = c.lr / (1.0 + (double(args.step) - 1.0) * c.lr_decay);
      e.w = std::fma(A(-rate), g / (std::sqrt(e.s[0]) + A(c.eps)), e.w);
      break;
    }
    case UpdateRule::adamw:
    case UpdateRule::amsgrad: {
      e.s[0] = std::fma(A(c.beta1), e.s[0], A(1.0 - c.beta1) * g);
      e.s[1] = std::fma(A(c.beta2), e.s[1], (A(1.0 - c.beta2) * g) * g);
      A square = e.s[1];
      if (args.rule == UpdateRule::amsgrad) square = e.s[2] = std::max(e.s[2], e.s[1]);
      const A d = std::fma(std::sqrt(square), A(1.0 / std::sqrt(correction2)), A(c.eps));
      decay();
      e.w = std::fma(A(-c.lr / correction1), e.s[0] / d, e.w);
      break;
    }
    case UpdateRule::gradient:
      e.w = gradient * factor;
      break;
    case UpdateRule::lamb: {
      e.s[0] = std::fma(A(c.beta1), e.s[0], A(1.0 - c.beta1) * g);
      e.s[1] = std::fma(A(c.beta2), e.s[1], (A(1.0 - c.beta2) * g) * g);
      const A d = e.s[0] / (std::sqrt(e.s[1]) + A(c.eps));
      e.w = c.weight_decay != 0.0 ? std::fma(A(c.weight_decay), e.w, d) : d;
      break;
    }
    case UpdateRule::lion: {
      const A u = std::fma(A(c.beta1), e.s[0], A(1.0 - c.beta1) * g);
      decay();
      e.w = std::fma(A(-c.lr), A(u > 0 ? 1 : u < 0 ? -1 : 0), e.w);
      e.s[0] = std::fma(A(c.beta2), e.s[0], A(1.0 - c.beta2) * g);
      break;
    }
    case UpdateRule::momentum:
      e.s[0] = args.step == 1 ? g : std::fma(A(c.momentum), e.s[0], A(1.0 - c.dampening) * g);
      e.w = std::fma(A(-c.lr), c.nesterov ? std::fma(A(c.momentum), e.s[0], g) : e.s[0], e.w);
      break;
    case UpdateRule::muon: {
      const A share = A(1.0 - c.momentum) * A(gradient * factor);
      e.s[0] = std::fma(A(c.momentum), e.s[0], share);
      e.w = c.nesterov ? std::fma(A(c.momentum), e.s[0], share) : e.s[0];
      break;
    }
    case UpdateRule::onebit: {
      e.s[0] = g;
      const A ratio = g / (std::sqrt(e.s[1]) + A(c.eps));
      decay();
      e.w = std::fma(A(-c.lr), e.s[1] > 0 ? ratio : A(0), e.w);
      break;
    }
    case UpdateRule::running_mean: {
      const A added = std::fma(A(1.0 - c.beta2), A(gradient * factor), A((1.0 - c.beta2) * c.eps));
      e.w = std::fma(A(c.beta2), e.w, added);
      break;
    }
    case UpdateRule::schedulefree: {
      e.s[1] = std::fma(A(c.beta2), e.s[1], (A(1.0 - c.beta2) * g) * g);
      A u = g / std::fma(std::sqrt(e.s[1]), A(1.0 / std::sqrt(correction2)), A(c.eps));
      if (c.weight_decay != 0.0) u = std::fma(A(c.weight_decay), e.w, u);
      e.w = std::fma(A(c.average), e.s[0] - e.w, e.w);
      e.w = std::fma(A(c.lr * (c.beta1 * (1.0 - c.average) - 1.0)), u, e.w);
      e.s[0] = std::fma(A(-c.lr), u, e.s[0]);
      break;
    }
    case UpdateRule::schedulefree_average: {
      const A y = gradient * factor;
      e.w = std::fma(A(1.0 - 1.0 / c.beta1), e.s[0] - y, y);
      break;
    }
    case UpdateRule::sgd:
      e.w = std::fma(A(-c.lr), g, e.w);
      break;
    case UpdateRule::sgdw:
      decay();
      e.w = std::fma(A(-c.lr), g, e.w);
      break;
  }
  return e;
}

template <class A>
Element<A> step_at(int64_t i, const State& before, const HostArray& gradient, float factor,
                   const ElementUpdate& args) {
  Element<A> element{A(before.weights.at(i))};
  for (size_t k = 0; k < before.kept.size(); ++k) element.s[k] = A(before.kept[k].at(i));
  return step<A>(element, A(gradient.at(i)), A(factor), args);
}

template <class A>
void expect_step(const State& before, const State& after, const HostArray& gradient, float factor,
                 const ElementUpdate& args) {
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    const Element<A> e = step_at<A>(i, before, gradient, factor, args);
    const double weight = makes_direction(args.rule) ? before.weights.at(i) : double(e.w);
    ASSERT_EQ(after.weights.at(i), weight) << name_of(args.rule) << ' ' << i;
    for (size_t k = 0; k < after.kept.size(); ++k) {
      ASSERT_EQ(after.kept[k].at(i), double(e.s[k])) << name_of(args.rule) << ' ' << i;
    }
    const HostArray rounded = HostArray::of({double(e.w)}, Shape{}, after.model.dtype());
    ASSERT_EQ(after.model.at(i), rounded.at(0)) << name_of(args.rule) << ' ' << i;
  }
}

// What the rule's formula reads, in every combination.
std::vector<UpdateConstants> variants_of(UpdateRule rule) {
  std::vector<UpdateConstants> variants;
  for (const double decay : {0.0, 0.1}) {
    variants.push_back({.weight_decay = decay});
    if (rule == UpdateRule::adamw || rule == UpdateRule::amsgrad) {
      variants.push_back({.weight_decay = decay, .decoupled = false});
    }
    if (rule == UpdateRule::adagrad) variants.push_back({.weight_decay = decay, .lr_decay = 0.3});
    if (rule == UpdateRule::schedulefree) {
      variants.push_back({.weight_decay = decay, .average = 0.3});
      variants.push_back({.weight_decay = decay, .average = 0.0});
    }
    if (rule == UpdateRule::muon) {
      variants.back() = {.momentum = 0.95};
      variants.push_back({.momentum = 0.95, .nesterov = true});
      variants.push_back({.momentum = 0.0});
    }
    if (rule == UpdateRule::momentum) {
      variants.back().momentum = 0.9;
      variants.push_back({.weight_decay = decay, .momentum = 0.9, .dampening = 0.3});
      variants.push_back({.weight_decay = decay, .momentum = 0.9, .nesterov = true});
    }
  }
  return variants;
}

TEST(ElementUpdate, EveryRuleAndDType_FollowsTheStatedOperationsBitForBit) {
  const HostArray factor = HostArray::full(Shape{1}, DType::f32, 0.37);
  for (const UpdateRule rule : kRules) {
    for (const DType gradient_dtype : test::kFloatDTypes) {
      const DType dtype = gradient_dtype == DType::f64 ? DType::f64 : DType::f32;
      const test::DeviceScope scope(test::device_for(dtype));
      for (const DType model : {DType::bf16, DType::f16, DType::f32}) {
        for (const int64_t n : test::kOddSizes) {
          for (const UpdateConstants& constants : variants_of(rule)) {
            for (const int64_t at_step : {1, 7}) {
              const State before = make_state(rule, n, dtype, model, dtype);
              State after = before;
              const HostArray gradient = HostArray::random(Shape{n}, gradient_dtype, 14);
              ElementUpdate args = args_of(rule, after, gradient);
              args.factor = factor;
              args.step = at_step;
              args.constants = constants;
              element_update(args, test::test_stream());
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
}

TEST(ElementUpdate, ValuesOnTheDevice_TakeThePlaceOfTheMembers) {
  for (const UpdateRule rule : kRules) {
    const State before = make_state(rule, 1025, DType::f32, DType::bf16, DType::f32);
    State after = before;
    const HostArray gradient = HostArray::random(Shape{1025}, DType::bf16, 14);
    ElementUpdate args = args_of(rule, after, gradient);
    args.step = 7;
    args.constants = {.weight_decay = 0.1, .lr_decay = 0.1, .momentum = 0.9, .nesterov = true};
    std::vector<float> numbers(static_cast<size_t>(num_update_values(rule)));
    update_values(args, numbers);
    const HostArray values = HostArray::of(std::vector<double>(numbers.begin(), numbers.end()),
                                           Shape{num_update_values(rule)}, DType::f32);
    ElementUpdate by_device = args;
    by_device.values = values;
    by_device.step = 1;
    by_device.constants = {.lr = 1e9, .beta1 = 0.1};
    element_update(by_device, test::test_stream());
    expect_step<float>(before, after, gradient, 1.0f, args);
  }
  const test::DeviceScope scope(test::device_for(DType::f64));
  const State before = make_state(UpdateRule::sgdw, 40, DType::f64, DType::f32, DType::f64);
  State after = before;
  const HostArray gradient = HostArray::random(Shape{40}, DType::f64, 14);
  ElementUpdate args = args_of(UpdateRule::sgdw, after, gradient);
  args.constants = {.lr = 0.3, .weight_decay = 0.1};
  ElementUpdate by_device = args;
  const HostArray values = HostArray::of({-0.3, -0.3 * 0.1, 0.0, 0.0}, Shape{4}, DType::f64);
  by_device.values = values;
  by_device.constants = {.lr = 1e9};
  element_update(by_device, test::test_stream());
  expect_step<double>(before, after, gradient, 1.0f, args);
}

// Note [States in 16 bits], from every place in a block of random words.
TEST(ElementUpdate, StatesInBf16_AreRoundedByTheWordOfTheirElement) {
  const RandomKey random{.key = 0x123456789abcdefu, .counter_high = 0xfedcba9876543210u};
  for (const UpdateRule rule :
       {UpdateRule::adamw, UpdateRule::lion, UpdateRule::adagrad, UpdateRule::muon}) {
    for (const DType gradient_dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t n : test::kOddSizes) {
        for (const int64_t first_element : {0, 5, 1022}) {
          const State before = make_state(rule, n, DType::f32, DType::bf16, DType::bf16);
          const HostArray gradient = HostArray::random(Shape{n}, gradient_dtype, 14);
          State after = before;
          ElementUpdate args = args_of(rule, after, gradient);
          args.step = 7;
          args.constants.momentum = 0.9;
          args.random = random;
          args.first_element = first_element;
          std::vector<float> numbers(static_cast<size_t>(num_update_values(rule)));
          update_values(args, numbers);
          HostArray values(Shape{num_update_values(rule)}, DType::f32);
          std::memcpy(values.view().data(), numbers.data(), numbers.size() * sizeof(float));
          element_update(args, test::test_stream());
          for (int64_t i = 0; i < n; ++i) {
            const Element<float> e = step_at<float>(i, before, gradient, 1.0f, args);
            const uint32_t word = random.bits(static_cast<uint64_t>(first_element + i));
            ASSERT_EQ(after.model.at(i), HostArray::of({double(e.w)}, Shape{}, DType::bf16).at(0));
            if (!makes_direction(rule)) {
              ASSERT_EQ(after.weights.at(i), double(e.w)) << i;
            }
            for (size_t k = 0; k < after.kept.size(); ++k) {
              ASSERT_EQ(after.kept[k].at(i), double(round_by_chance(e.s[k], word >> 16 * k))) << i;
            }
          }
          // The same with the step's values on the device.
          State again = before;
          ElementUpdate by_device = args_of(rule, again, gradient);
          by_device.random = {.key = random.key, .counter_high = 1};
          by_device.first_element = first_element;
          by_device.values = values;
          element_update(by_device, test::test_stream());
          ASSERT_TRUE(same_bits(again, after)) << n << ' ' << first_element;
        }
      }
    }
  }
}

// Elements of a slice have the words of their places in the whole.
TEST(ElementUpdate, StatesInBf16_OfASlice_AreRoundedAsThoseOfTheWhole) {
  constexpr UpdateRule kRule = UpdateRule::adamw;
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
    const State begin = make_state(kRule, n, DType::f32, DType::bf16, DType::bf16);
    const HostArray gradient = HostArray::random(Shape{n}, DType::f32, 14);
    State whole = begin;
    ElementUpdate args = args_of(kRule, whole, gradient);
    args.step = 7;
    args.random = random;
    element_update(args, test::test_stream());
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
          const auto part_of_state = [&](const State& of) {
            return State{
                part_of(of.weights), part_of(of.model), {part_of(of.kept[0]), part_of(of.kept[1])}};
          };
          State part = part_of_state(begin);
          const HostArray its_gradient = part_of(gradient);
          ElementUpdate of_part = args_of(kRule, part, its_gradient);
          of_part.step = 7;
          of_part.random = random;
          of_part.first_element = first;
          of_part.places = ElementPlaces::of(slice);
          element_update(of_part, test::test_stream());
          ASSERT_TRUE(same_bits(part, part_of_state(whole))) << index;
        }
      }
    }
  }
}

TEST(ElementUpdate, RoundingByChance_IsRightInTheMeanAndKeepsWhatBf16Holds) {
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

TEST(ElementUpdate, FirstStepOfAdamW_MovesByTheLearningRateAgainstTheSign) {
  const test::DeviceScope scope(test::device_for(DType::f64));
  // With m = v = 0 the corrected moments are g and g^2: the step is lr * g / (|g| + eps).
  State s{HostArray::of({1.0, 1.0, 1.0}, Shape{3}, DType::f64),
          HostArray(Shape{3}, DType::f32),
          {HostArray::full(Shape{3}, DType::f64, 0.0), HostArray::full(Shape{3}, DType::f64, 0.0)}};
  const HostArray gradient = HostArray::of({0.5, -2.0, 0.0}, Shape{3}, DType::f64);
  ElementUpdate args = args_of(UpdateRule::adamw, s, gradient);
  args.constants.lr = 0.01;
  element_update(args, test::test_stream());
  EXPECT_NEAR(s.weights.at(0), 0.99, 1e-9);
  EXPECT_NEAR(s.weights.at(1), 1.01, 1e-9);
  EXPECT_EQ(s.weights.at(2), 1.0);
}

TEST(ElementUpdate, ManySteps_MatchTheFormulaInF64) {
  // f32 against f64 over 100 steps: each step rounds a few times, and errors do not grow faster
  // than their number because every step is of size lr. Lion is left out: a sign near 0 may differ.
  const int64_t n = 33;
  for (const UpdateRule rule : kRules) {
    if (rule == UpdateRule::lion) continue;
    State narrow = make_state(rule, n, DType::f32, DType::f32, DType::f32);
    State wide{narrow.weights.as(DType::f64), HostArray(Shape{n}, DType::f64), {}};
    for (const HostArray& state : narrow.kept) wide.kept.push_back(state.as(DType::f64));
    for (int64_t t = 1; t <= 100; ++t) {
      const HostArray gradient = HostArray::random(Shape{n}, DType::f32, 100 + uint64_t(t));
      const HostArray exact = gradient.as(DType::f64);
      for (auto [state, g] : {std::pair{&narrow, &gradient}, {&wide, &exact}}) {
        const test::DeviceScope scope(test::device_for(g->dtype()));
        ElementUpdate args = args_of(rule, *state, *g);
        args.step = t;
        args.constants = {.weight_decay = 0.01, .momentum = 0.5};
        element_update(args, test::test_stream());
      }
    }
    const auto result = [rule](const State& s) -> const HostArray& {
      return makes_direction(rule) ? s.model : s.weights;
    };
    EXPECT_LE(test::relative_l2(result(narrow), result(wide)), 100 * 0x1p-24) << name_of(rule);
  }
}

// Note [Weights in 16 bits].
void expect_weights_rounded_by_chance() {
  const RandomKey random{.key = 77, .counter_high = 5};
  const RandomKey of_weights = random_of_weights(random);
  for (const UpdateRule rule : kRules) {
    if (!reads_weights(rule)) continue;
    for (const DType states : {DType::f32, DType::bf16}) {
      if (states == DType::bf16 && num_states(rule) > 2) continue;
      for (const int64_t n : test::kOddSizes) {
        for (const int64_t first_element : {0, 1022}) {
          State before = make_state(rule, n, DType::f32, DType::bf16, states);
          before.weights = before.weights.as(DType::bf16);
          const HostArray gradient = HostArray::random(Shape{n}, DType::bf16, 14);
          State after = before;
          ElementUpdate args = args_of(rule, after, gradient);
          if (first_element != 0) args.model_weights = {};
          args.constants.momentum = 0.9;
          args.step = 7;
          args.random = random;
          args.first_element = first_element;
          element_update(args, test::test_stream());
          for (int64_t i = 0; i < n; ++i) {
            const Element<float> e = step_at<float>(i, before, gradient, 1.0f, args);
            const uint32_t word = of_weights.bits(static_cast<uint64_t>(first_element + i));
            const double wanted =
                makes_direction(rule) ? before.weights.at(i) : double(round_by_chance(e.w, word));
            ASSERT_EQ(after.weights.at(i), wanted) << name_of(rule) << ' ' << i;
            if (args.model_weights) {
              ASSERT_EQ(after.model.at(i), wanted) << name_of(rule) << ' ' << i;
            }
          }
        }
      }
    }
  }
}

TEST(ElementUpdate, WeightsInBf16_AreRoundedByChance) {
  expect_weights_rounded_by_chance();
  if (!test::runs_on_cuda()) return;
  const test::DeviceScope scope(kCpu);
  expect_weights_rounded_by_chance();
}

TEST(ElementUpdate, Skip_LeavesEveryBit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const HostArray gradient = HostArray::full(Shape{100}, DType::bf16, nan);
  for (const UpdateRule rule : kRules) {
    const State before = make_state(rule, 100, DType::f32, DType::bf16, DType::f32);
    for (const double flag : {1.0, -3.0, 0.0}) {
      const HostArray skip = HostArray::full(Shape{1}, DType::i32, flag);
      State after = before;
      ElementUpdate args = args_of(rule, after, gradient);
      args.skip = skip;
      element_update(args, test::test_stream());
      EXPECT_EQ(same_bits(after, before), flag != 0.0) << name_of(rule);
      // The direction was no number before, and states do not change.
      if (rule == UpdateRule::gradient || rule == UpdateRule::schedulefree_average) continue;
      const HostArray& result = makes_direction(rule) ? after.kept[0] : after.weights;
      EXPECT_EQ(std::isnan(result.at(0)), flag == 0.0) << name_of(rule);
    }
  }
}

TEST(ElementUpdate, TinyMoments_KeepTheirDenormals) {
  State s = make_state(UpdateRule::adamw, 40, DType::f32, DType::f32, DType::f32);
  s.kept[0].set_all(0x1p-140);
  s.kept[1].set_all(0x1p-145);
  const State before = s;
  const HostArray gradient = HostArray::full(Shape{40}, DType::f32, 0.0);
  ElementUpdate args = args_of(UpdateRule::adamw, s, gradient);
  args.step = 1000;
  element_update(args, test::test_stream());
  EXPECT_GT(s.kept[0].at(0), 0.0);
  EXPECT_GT(s.kept[1].at(0), 0.0);
  expect_step<float>(before, s, gradient, 1.0f, args);
}

void expect_parts_and_threads_agree(UpdateRule rule, DType states) {
  const int64_t n = 50'001;
  const HostArray gradient = HostArray::random(Shape{n}, DType::bf16, 15);
  const auto make = [&] { return make_state(rule, n, DType::f32, DType::bf16, states); };
  const UpdateConstants constants{.weight_decay = 0.1, .momentum = 0.9};
  const auto whole = [&] {
    State s = make();
    ElementUpdate args = args_of(rule, s, gradient);
    args.constants = constants;
    element_update(args, test::test_stream());
    return s;
  };
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    State s = whole();
    std::vector<HostArray> all = std::move(s.kept);
    all.push_back(std::move(s.weights));
    all.push_back(std::move(s.model));
    return all;
  })) << name_of(rule);
  State parts = make();
  const ElementUpdate all = args_of(rule, parts, gradient);
  for (int64_t begin = 0; begin < n; begin += 7'777) {
    const int64_t length = std::min<int64_t>(7'777, n - begin);
    const auto part = [&](const View& view) { return view ? view.narrow(0, begin, length) : view; };
    ElementUpdate args{.rule = rule,
                       .weights = part(all.weights),
                       .gradient = gradient.view().narrow(0, begin, length),
                       .model_weights = part(all.model_weights),
                       .direction = part(all.direction),
                       .constants = constants,
                       .first_element = begin};
    for (size_t i = 0; i < args.states.size(); ++i) args.states[i] = part(all.states[i]);
    element_update(args, test::test_stream());
  }
  EXPECT_TRUE(same_bits(parts, whole())) << name_of(rule);
}

TEST(ElementUpdate, PartsAndThreads_SameBitsAsTheWhole) {
  for (const UpdateRule rule : kRules) {
    expect_parts_and_threads_agree(rule, DType::f32);
    if (num_states(rule) <= 2) expect_parts_and_threads_agree(rule, DType::bf16);
  }
}

TEST(ElementUpdate, BadArgumentsCostAndMetaDevice) {
  State s = make_state(UpdateRule::adamw, 8, DType::f32, DType::bf16, DType::f32);
  const HostArray gradient(Shape{8}, DType::bf16);
  const HostArray wide(Shape{8}, DType::f64);
  const auto message = [&](const ElementUpdate& args) {
    return test::message_of_invalid([&] { element_update(args, test::test_stream()); });
  };
  const auto good = [&] { return args_of(UpdateRule::adamw, s, gradient); };
  ElementUpdate args = args_of(UpdateRule::adamw, s, wide);
  EXPECT_THAT(message(args), HasSubstr("gradient of f64 does not go with weights of f32"));
  args = good();
  args.step = 0;
  EXPECT_THAT(message(args), HasSubstr("adamw: step counts from 1, not 0"));
  args = good();
  args.constants.beta2 = 1.0;
  EXPECT_THAT(message(args), HasSubstr("a beta must be in [0, 1), not 1"));
  args = good();
  args.states[0] = s.kept[1];
  EXPECT_THAT(message(args), HasSubstr("state and another state must not overlap"));
  args = good();
  args.states[1] = gradient;
  EXPECT_THAT(message(args), HasSubstr("state must be f32"));
  args = good();
  args.states[1] = {};
  EXPECT_THAT(message(args), HasSubstr("state is missing"));
  args = good();
  args.skip = gradient;
  EXPECT_THAT(message(args), HasSubstr("skip must be i32"));
  args = good();
  args.constants.nesterov = true;
  EXPECT_THAT(message(args), HasSubstr("nesterov needs momentum"));
  State narrow = make_state(UpdateRule::amsgrad, 8, DType::f32, DType::bf16, DType::bf16);
  EXPECT_THAT(message(args_of(UpdateRule::amsgrad, narrow, gradient)),
              HasSubstr("3 states cannot be bf16"));
  EXPECT_THAT(message({.rule = UpdateRule::sgd, .weights = gradient, .gradient = gradient}),
              HasSubstr("gradient and weights must not overlap"));
  args = good();
  args.weights = gradient;
  HostArray halves(Shape{8}, DType::f16);
  args.gradient = args.model_weights = halves;
  EXPECT_THAT(message(args), HasSubstr("model_weights beside weights of bf16 must be bf16 too"));
  EXPECT_EQ(cost(good()).bytes(), 8 * (12 + 2 + 12 + 2));
  args = good();
  args.direction = s.weights;
  EXPECT_THAT(message(args), HasSubstr("adamw: weights change here, no direction comes"));
  State directed = make_state(UpdateRule::muon, 8, DType::f32, DType::bf16, DType::f32);
  const auto direct = [&] { return args_of(UpdateRule::muon, directed, gradient); };
  EXPECT_EQ(cost(direct()).bytes(), 8 * (4 + 2 + 4 + 2));
  args = direct();
  args.weights = directed.weights;
  EXPECT_THAT(message(args), HasSubstr("muon: a direction comes here, no weights change"));
  args = direct();
  args.direction = {};
  EXPECT_THAT(message(args), HasSubstr("muon: direction is missing"));
  args.direction = wide;
  EXPECT_THAT(message(args), HasSubstr("direction of f64 does not go with a gradient of bf16"));
  args.direction = gradient;
  EXPECT_THAT(message(args), HasSubstr("direction and gradient must not overlap"));
  args.direction = directed.kept[0];
  EXPECT_THAT(message(args), HasSubstr("state and direction must not overlap"));
  element_update({.weights = test::meta_view(Shape{8}, DType::f32),
                  .gradient = test::meta_view(Shape{8}, DType::f32, 2),
                  .states = {test::meta_view(Shape{8}, DType::f32, 3),
                             test::meta_view(Shape{8}, DType::f32, 4)}},
                 test::test_stream());
}

}  // namespace element_update_test
}  // namespace zinc::kernels
