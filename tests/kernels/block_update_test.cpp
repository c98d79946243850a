// States in blocks of 8 bits: encoding and decoding, and the update that keeps them so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/block_codes.h"
#include "kernels/decode.h"
#include "kernels/element_update.h"
#include "kernels/encode.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace block_update_test {

using test::HostArray;
using testing::HasSubstr;

constexpr BlockFormat kFormats[] = {BlockFormat::signed8, BlockFormat::unsigned8};
constexpr int64_t kBlock = 256;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

HostArray encoded(BlockFormat format, const HostArray& x) {
  HostArray y(Shape{encoded_bytes(format, x.numel())}, DType::u8);
  encode({.x = x.on_host(), .format = format, .y = y.on_host()});
  return y;
}
HostArray decoded(BlockFormat format, const HostArray& x, int64_t n) {
  HostArray y(Shape{n}, DType::f32);
  decode({.x = x, .format = format, .y = y}, test::test_stream());
  return y;
}

// Note [States in 8 bits], value by value: the nearest one by a walk from 0 up.
struct Block {
  float scale = 0.0f;
  std::array<uint8_t, kBlock> codes{};
};
Block block_of(BlockFormat format, const float* values) {
  Block block;
  const float most = *std::max_element(values, values + kBlock);
  const float least = *std::min_element(values, values + kBlock);
  block.scale = most >= -least ? most : least;
  for (int64_t i = 0; i < kBlock; ++i) {
    if (!std::isfinite(values[i])) block.scale = std::numeric_limits<float>::quiet_NaN();
  }
  if (block.scale == 0.0f) block.scale = 0.0f;  // not -0
  if (std::isnan(block.scale) || block.scale == 0.0f) return block;
  const bool is_signed = format == BlockFormat::signed8;
  const auto& map = byte_values(format);
  for (int64_t i = 0; i < kBlock; ++i) {
    const float quotient = values[i] / block.scale;
    int code = 0;
    const int last = is_signed ? 128 : 255;
    while (code < last) {
      const auto at = static_cast<size_t>(code);
      const float middle = !is_signed && code == 0 ? 0.0f : (map[at] + map[at + 1]) / 2.0f;
      if (!(std::fabs(quotient) > middle)) break;
      ++code;
    }
    if (quotient < 0.0f) code = is_signed ? -std::min(code, 127) : 0;
    block.codes[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
  }
  return block;
}

void expect_blocks(BlockFormat format, const std::vector<float>& values, const HostArray& bytes) {
  const auto* at = bytes.on_host().data_as<uint8_t>();
  for (int64_t block = 0; block < std::ssize(values) / kBlock; ++block) {
    const Block wanted = block_of(format, values.data() + block * kBlock);
    const uint8_t* chunk = at + block / 4 * 1040;
    float scale = 0.0f;
    std::memcpy(&scale, chunk + 1024 + block % 4 * 4, sizeof(scale));
    ASSERT_EQ(std::bit_cast<uint32_t>(scale),
              std::isnan(wanted.scale) ? 0x7fc00000u : std::bit_cast<uint32_t>(wanted.scale))
        << name_of(format) << ' ' << block;
    for (int64_t i = 0; i < kBlock; ++i) {
      ASSERT_EQ(int{chunk[block % 4 * kBlock + i]}, int{wanted.codes[static_cast<size_t>(i)]})
          << name_of(format) << ' ' << block << ' ' << i << ": "
          << values[static_cast<size_t>(block * kBlock + i)];
    }
  }
}

// A block of all values of the map, by scales over all exponents and of both signs: the same bytes
// again, and the same values from any scale.
TEST(BlockUpdate, DecodedValues_EncodeToTheBytesThatTheyCameFrom) {
  std::vector<float> scales;
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (const float mantissa : {1.0f, 1.5f, 1.0f + 0x1p-23f, 2.0f - 0x1p-23f, 1.2345678f}) {
      const float scale = std::ldexp(mantissa, exponent);
      if (scale > 0.0f && scale < kInfinity) scales.push_back(scale);
    }
  }
  for (const BlockFormat format : kFormats) {
    const auto& map = byte_values(format);
    const int64_t blocks = (std::ssize(scales) + 3) / 4 * 4;
    for (const float sign : {1.0f, -1.0f}) {
      if (sign < 0.0f && format == BlockFormat::unsigned8) continue;
      HostArray values(Shape{blocks * kBlock}, DType::f32);
      values.set_all(0.0);
      auto* to = values.on_host().data_as<float>();
      for (size_t block = 0; block < scales.size(); ++block) {
        for (size_t i = 0; i < map.size(); ++i)
          to[block * 256 + i] = map[i] * (sign * scales[block]);
      }
      const HostArray bytes = encoded(format, values);
      const HostArray back = decoded(format, bytes, values.numel());
      const HostArray again = encoded(format, back);
      const auto* codes = bytes.on_host().data_as<uint8_t>();
      const auto* codes_again = again.on_host().data_as<uint8_t>();
      for (size_t block = 0; block < scales.size(); ++block) {
        for (size_t i = 0; i < 256; ++i) {
          const auto at = static_cast<int64_t>(block * 256 + i);
          ASSERT_EQ(back.at(at), values.at(at)) << scales[block] << ' ' << i;
          if (scales[block] < 0x1p-100f) continue;
          const size_t place = block / 4 * 1040 + block % 4 * 256 + i;
          ASSERT_EQ(size_t{codes[place]}, i) << scales[block];
          ASSERT_EQ(codes_again[place], codes[place]) << scales[block];
        }
      }
      EXPECT_TRUE(test::same_bits(decoded(format, again, values.numel()), back));
    }
  }
}

// Any block keeps its bytes from the second time on, with the scale: ties, opposite values, values
// between the largest negative code and -1, zeros, a part of a chunk.
TEST(BlockUpdate, EncodedBlocks_FollowTheNoteAndStay) {
  for (const BlockFormat format : kFormats) {
    const double low = format == BlockFormat::signed8 ? -1.0 : 0.0;
    std::vector<float> values;
    for (int block = 0; block < 400; ++block) {
      const HostArray random =
          HostArray::random(Shape{kBlock}, DType::f32, static_cast<uint64_t>(block), low, 1.0);
      for (int64_t i = 0; i < kBlock; ++i) {
        // Magnitudes over 2^24, about a scale of each exponent.
        const double spread = std::ldexp(random.at(i), -static_cast<int>(i % 25));
        values.push_back(static_cast<float>(std::ldexp(spread, block / 2 - 90)));
      }
      float* of_block = values.data() + block * kBlock;
      const float top = *std::max_element(of_block, of_block + kBlock, [](float a, float b) {
        return std::fabs(a) < std::fabs(b);
      });
      if (block % 5 == 1) std::fill(of_block + 100, of_block + kBlock, 0.0f);
      if (block % 5 == 2) of_block[7] = low < 0.0 ? -top : top;
      if (block % 5 == 3 && low < 0.0) of_block[9] = -0.999f * top;
      if (block % 20 == 4) std::fill(of_block, of_block + kBlock, block % 40 == 4 ? 0.0f : -0.0f);
      // Midpoints of neighbouring values of the map, where the scale is a power of two.
      if (block % 7 == 0) {
        of_block[0] = std::ldexp(1.0f, block / 2 - 88);
        for (size_t i = 1; i < 100; ++i) {
          const auto& map = byte_values(format);
          of_block[i] = (map[i] + map[i + 1]) / 2.0f * of_block[0];
        }
      }
    }
    values[static_cast<size_t>(kBlock * 50 + 3)] = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(kBlock * 51 + 3)] = kInfinity;
    HostArray x(Shape{std::ssize(values)}, DType::f32);
    std::memcpy(x.on_host().data(), values.data(), values.size() * sizeof(float));
    const HostArray bytes = encoded(format, x);
    expect_blocks(format, values, bytes);
    const HostArray back = decoded(format, bytes, x.numel());
    for (int64_t i = 0; i < 2 * kBlock; ++i) ASSERT_TRUE(std::isnan(back.at(50 * kBlock + i)));
    EXPECT_TRUE(test::same_bits(encoded(format, back), bytes)) << name_of(format);
    // A part, as a parameter's end: zeros behind it.
    const HostArray part = HostArray::of(std::vector<double>(values.begin(), values.begin() + 1300),
                                         Shape{1300}, DType::f32);
    std::vector<float> padded(values.begin(), values.begin() + 1300);
    padded.resize(2048, 0.0f);
    expect_blocks(format, padded, encoded(format, part));
  }
}

struct State {
  HostArray weights, model;
  std::array<HostArray, 2> kept;
};

State make_state(int64_t n, DType model) {
  return {HostArray::random(Shape{n}, DType::f32, 1),
          HostArray(Shape{n}, model),
          {encoded(kFormats[0], HostArray::random(Shape{n}, DType::f32, 2, -0.01, 0.01)),
           encoded(kFormats[1], HostArray::random(Shape{n}, DType::f32, 3, 0.0, 1e-4))}};
}
ElementUpdate args_of(const State& s, const HostArray& gradient) {
  return {.rule = UpdateRule::adamw,
          .weights = s.weights,
          .gradient = gradient,
          .states = {s.kept[0], s.kept[1]},
          .model_weights = s.model};
}
bool same_bits(const State& a, const State& b) {
  return test::same_bits(a.weights, b.weights) && test::same_bits(a.model, b.model) &&
         test::same_bits(a.kept[0], b.kept[0]) && test::same_bits(a.kept[1], b.kept[1]);
}

// Note [Bits of states in blocks]: decode, the rule on f32 states, encode, each an op of its own.
State composed(const State& before, const HostArray& gradient, const ElementUpdate& like) {
  State after = before;
  const int64_t n = gradient.numel();
  const std::array<HostArray, 2> wide{decoded(kFormats[0], before.kept[0], n),
                                      decoded(kFormats[1], before.kept[1], n)};
  ElementUpdate args = like;
  args.weights = after.weights;
  args.gradient = gradient;
  args.states = {wide[0], wide[1]};
  args.model_weights = after.model;
  element_update(args, test::test_stream());
  for (size_t j = 0; j < 2; ++j) {
    const HostArray in_host = HostArray::of(wide[j].values(), wide[j].shape(), DType::f32);
    after.kept[j] = encoded(kFormats[j], in_host);
    std::vector<float> values;
    for (const double value : wide[j].values()) values.push_back(static_cast<float>(value));
    expect_blocks(kFormats[j], values, after.kept[j]);
  }
  return after;
}

TEST(BlockUpdate, EveryDType_EqualsDecodeUpdateEncodeBitForBit) {
  const HostArray factor = HostArray::full(Shape{1}, DType::f32, 0.37);
  for (const DType gradient_dtype : test::kShortFloatDTypes) {
    for (const DType model : test::kShortFloatDTypes) {
      for (const int64_t n : {0, 1024, 5 * 1024}) {
        for (const double decay : {0.0, 0.1}) {
          State state = make_state(n, model);
          for (const int64_t step : {1, 2, 7}) {
            const State before = state;
            const HostArray gradient =
                HostArray::random(Shape{n}, gradient_dtype, 14 + static_cast<uint64_t>(step));
            ElementUpdate args = args_of(state, gradient);
            args.factor = factor;
            args.step = step;
            args.constants.weight_decay = decay;
            element_update(args, test::test_stream());
            if (n == 0) continue;
            ASSERT_TRUE(same_bits(state, composed(before, gradient, args)))
                << name_of(gradient_dtype) << ' ' << name_of(model) << ' ' << n << ' ' << step;
          }
        }
      }
    }
  }
}

// Blocks of any scale beside each other, with all their values next to where a code ends. With
// betas of 0 the gradient is the first state, and its square the second.
TEST(BlockUpdate, ValuesAboutMidpoints_HaveTheCodesOfTheirQuotients) {
  constexpr int64_t kBlocks = 2048;
  const HostArray random = HostArray::random(Shape{2, kBlocks * kBlock}, DType::f32, 21, 0.0, 1.0);
  const auto chance = [&](int64_t row, int64_t i) { return random.at(row * kBlocks * kBlock + i); };
  std::vector<double> values;
  for (int64_t block = 0; block < kBlocks; ++block) {
    const bool is_second = block % 2 == 1;
    const auto& map = byte_values(kFormats[is_second ? 1 : 0]);
    const auto last = is_second ? 254.0 : 127.0;
    // One in four is out of reach of the reciprocals, one in sixteen has no codes at all.
    int exponent = -static_cast<int>(block / 2 % 38);
    if (block % 8 == 2) exponent = 5;
    if (block % 8 == 5) exponent = -60;
    const auto mantissa = static_cast<float>(1.0 + chance(0, block * kBlock)) / 2.0f;
    const float scale = block % 16 == 14 ? 0.0f : std::ldexp(mantissa, exponent);
    const float squared = scale * scale;
    for (int64_t i = 0; i < kBlock; ++i) {
      const auto at = static_cast<size_t>(chance(0, block * kBlock + i) * last);
      const float middle = (map[at] + map[at + 1]) / 2.0f;
      float value = is_second ? std::sqrt(middle * squared) : middle * scale;
      const double steps = chance(1, block * kBlock + i) * 7.0 - 3.5;
      for (int step = 0; step < static_cast<int>(std::fabs(steps)); ++step) {
        value = std::nextafter(value, steps > 0.0 ? kInfinity : 0.0f);
      }
      values.push_back(i == 7 ? double{scale} : i % 3 == 0 ? -double{value} : double{value});
    }
  }
  const int64_t n = kBlocks * kBlock;
  const HostArray gradient = HostArray::of(values, Shape{n}, DType::f32);
  State state = make_state(n, DType::f32);
  const State before = state;
  ElementUpdate args = args_of(state, gradient);
  args.constants.beta1 = args.constants.beta2 = 0.0;
  element_update(args, test::test_stream());
  EXPECT_TRUE(same_bits(state, composed(before, gradient, args)));
}

// A small element of a block beside a large one moves by about the learning rate, and not by its
// moment over eps.
TEST(BlockUpdate, SmallGradientsBesideLargeOnes_DoNotMakeLargeSteps) {
  State state = make_state(1024, DType::f32);
  for (HostArray& kept : state.kept) kept.set_all(0.0);
  const State before = state;
  for (int64_t step = 1; step <= 50; ++step) {
    HostArray gradient = HostArray::full(Shape{1024}, DType::f32, 1e-5);
    gradient.set(0, 1.0);
    ElementUpdate args = args_of(state, gradient);
    args.step = step;
    element_update(args, test::test_stream());
  }
  for (int64_t i = 0; i < 1024; ++i) {
    ASSERT_LT(std::abs(state.weights.at(i) - before.weights.at(i)), 50 * 1.1e-3) << i;
  }
}

TEST(BlockUpdate, PartsThreadsAndTheStepsValues_ChangeNoBit) {
  constexpr int64_t kN = 64 * 1024;
  const HostArray gradient = HostArray::random(Shape{kN}, DType::bf16, 15);
  const State begin = make_state(kN, DType::bf16);
  const UpdateConstants constants{.weight_decay = 0.1};
  const auto whole = [&] {
    State s = begin;
    ElementUpdate args = args_of(s, gradient);
    args.constants = constants;
    args.step = 3;
    element_update(args, test::test_stream());
    return s;
  };
  const State wanted = whole();
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    State s = whole();
    std::vector<HostArray> all{s.weights, s.model, s.kept[0], s.kept[1]};
    return all;
  }));
  State parts = begin;
  const ElementUpdate all = args_of(parts, gradient);
  std::vector<float> numbers(static_cast<size_t>(num_update_values(UpdateRule::adamw)));
  update_values({.constants = constants, .step = 3}, numbers);
  const HostArray values = HostArray::of(std::vector<double>(numbers.begin(), numbers.end()),
                                         Shape{std::ssize(numbers)}, DType::f32);
  for (int64_t at = 0; at < kN; at += 5 * 1024) {
    const int64_t length = std::min<int64_t>(5 * 1024, kN - at);
    ElementUpdate args = all;
    args.weights = all.weights.narrow(0, at, length);
    args.gradient = all.gradient.narrow(0, at, length);
    args.model_weights = all.model_weights.narrow(0, at, length);
    for (size_t j = 0; j < 2; ++j) {
      args.states[j] = all.states[j].narrow(0, at / 1024 * 1040, length / 1024 * 1040);
    }
    args.values = values;
    element_update(args, test::test_stream());
  }
  EXPECT_TRUE(same_bits(parts, wanted));
}

TEST(BlockUpdate, SkipAndNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const State before = make_state(1024, DType::bf16);
  HostArray gradient = HostArray::full(Shape{1024}, DType::bf16, 1.0);
  gradient.set(300, nan);
  const HostArray skip = HostArray::full(Shape{1}, DType::i32, 1.0);
  State after = before;
  ElementUpdate args = args_of(after, gradient);
  args.skip = skip;
  element_update(args, test::test_stream());
  EXPECT_TRUE(same_bits(after, before));
  args = args_of(after, gradient);
  element_update(args, test::test_stream());
  for (size_t j = 0; j < 2; ++j) {
    const HostArray moment = decoded(kFormats[j], after.kept[j], 1024);
    // The block of the NaN, and no other.
    for (int64_t i = 0; i < 1024; ++i) ASSERT_EQ(std::isnan(moment.at(i)), i / 256 == 1) << i;
  }
  for (int64_t i = 0; i < 1024; ++i) ASSERT_EQ(std::isnan(after.weights.at(i)), i == 300) << i;
}

TEST(BlockUpdate, BadArgumentsAndCost) {
  const State s = make_state(1024, DType::bf16);
  const HostArray gradient = HostArray::full(Shape{1024}, DType::bf16, 1.0);
  const auto message = [&](const ElementUpdate& args) {
    return test::message_of_invalid([&] { element_update(args, test::test_stream()); });
  };
  ElementUpdate args = args_of(s, gradient);
  EXPECT_EQ(cost(args).bytes(), 1024 * (8 + 2 + 2) + 4 * 1040);
  args.rule = UpdateRule::lion;
  EXPECT_THAT(message(args), HasSubstr("states in 8 bits are for adamw with f32 weights"));
  args = args_of(s, gradient);
  args.states[1] = s.weights;
  EXPECT_THAT(message(args), HasSubstr("must be u8"));
  args = args_of(s, gradient);
  args.weights = args.weights.narrow(0, 0, 1000);
  args.gradient = args.gradient.narrow(0, 0, 1000);
  args.model_weights = args.model_weights.narrow(0, 0, 1000);
  EXPECT_THAT(message(args), HasSubstr("in chunks of 1024, and 1000 elements are not"));
}

}  // namespace block_update_test
}  // namespace zinc::kernels
