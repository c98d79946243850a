#include "core/philox.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "core/random_state.h"

namespace zinc {
namespace philox_test {

// The known-answer vectors that the authors publish with Random123 (philox4x32, 10 rounds).
TEST(Philox, KnownAnswers) {
  struct Vector {
    std::array<uint32_t, 4> counter;
    std::array<uint32_t, 2> key;
    std::array<uint32_t, 4> words;
  };
  const std::vector<Vector> vectors = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& vector : vectors) {
    const auto wide = [](uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; };
    const PhiloxBlock block =
        philox4x32(wide(vector.counter[0], vector.counter[1]),
                   wide(vector.counter[2], vector.counter[3]), wide(vector.key[0], vector.key[1]));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], vector.words[i]);
  }
}

TEST(RandomKey, Element_IsAWordOfItsBlock) {
  const RandomKey key = make_random_key(1, Purpose::test, 2, 3, hash_text("h.0.attn"));
  for (uint64_t element : {uint64_t{0}, uint64_t{5}, uint64_t{7}, (uint64_t{1} << 40) + 2}) {
    const PhiloxBlock block = philox4x32(element / 4, key.counter_high, key.key);
    EXPECT_EQ(key.bits(element), block.word[element % 4]);
  }
}

TEST(RandomKey, Uniform_EndsLieInsideTheOpenInterval) {
  EXPECT_EQ(RandomKey::to_uniform(0), 0x1p-24f);
  EXPECT_EQ(RandomKey::to_uniform(0xffffffffu), 1.0f - 0x1p-24f);
  EXPECT_LT(RandomKey::to_uniform(0xffffffffu), 1.0f);
  // Exact: the f64 formula gives the same value.
  for (uint32_t word = 1; word != 0 && word < 0xf0000000u; word = word * 3 + 1) {
    const double exact = (static_cast<double>(word >> 9) + 0.5) / 8388608.0;
    EXPECT_EQ(static_cast<double>(RandomKey::to_uniform(word)), exact);
  }
}

// A million draws in 100 cells. The chi-squared statistic has mean 99 and variance 198; the bounds
// are 5 standard deviations away. The mean has standard deviation sqrt(1/12) / 1000.
TEST(RandomKey, Uniform_FillsTheInterval) {
  const RandomKey key = make_random_key(42, Purpose::test, 0, 0, 0);
  constexpr int kDraws = 1'000'000;
  std::array<int, 100> cells{};
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const float u = key.uniform(static_cast<uint64_t>(i));
    ASSERT_GT(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    ++cells[static_cast<size_t>(u * 100.0f)];
    sum += u;
  }
  double chi_squared = 0;
  for (const int count : cells) {
    const double expected = kDraws / 100.0;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_NEAR(chi_squared, 99.0, 5 * std::sqrt(198.0));
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12) / 1000);
}

TEST(RandomKey, EveryPartOfTheKey_ChangesTheStream) {
  const uint64_t site = hash_text("h.0.mlp");
  std::set<uint32_t> words;
  words.insert(make_random_key(1, Purpose::dropout, 2, 3, site).bits(0));
  words.insert(make_random_key(2, Purpose::dropout, 2, 3, site).bits(0));
  words.insert(make_random_key(1, Purpose::initialize, 2, 3, site).bits(0));
  words.insert(make_random_key(1, Purpose::dropout, 3, 3, site).bits(0));
  words.insert(make_random_key(1, Purpose::dropout, 2, 2, site).bits(0));
  words.insert(make_random_key(1, Purpose::dropout, 3, 2, site).bits(0));  // not symmetric
  words.insert(make_random_key(1, Purpose::dropout, 2, 3, hash_text("h.1.mlp")).bits(0));
  words.insert(make_random_key(1, Purpose::dropout, 2, 3, site).bits(1));
  EXPECT_EQ(words.size(), 8u);
}

// Resumed runs depend on these values: they may never change. From a separate implementation.
TEST(RandomKey, Values_AreFrozen) {
  static_assert(hash_text("") == mix_bits(0xcbf29ce484222325u));
  static_assert(mix_bits(0) == 0xe220a8397b1dcdafu);  // SplitMix64 of seed 0, first value
  const RandomKey key = make_random_key(7, Purpose::initialize, 0, 0, hash_text("wte.weight"));
  EXPECT_EQ(hash_text("wte.weight"), 0x31c98b3a776f7b93u);
  EXPECT_EQ(key.bits(0), 0xc47bb6d1u);
  EXPECT_EQ(key.bits(1023), 0x55991e07u);
}

TEST(RandomState, Calls_AtOneSite_DrawDifferentNumbers) {
  RandomState state(9);
  const uint64_t site = hash_text("h.0.dropout");
  const uint32_t first = state.next(Purpose::dropout, site).bits(0);
  const uint32_t second = state.next(Purpose::dropout, site).bits(0);
  const uint32_t other = state.next(Purpose::dropout, hash_text("h.1.dropout")).bits(0);
  EXPECT_NE(first, second);
  EXPECT_NE(first, other);
}

TEST(RandomState, Sites_DoNotInfluenceEachOther) {
  RandomState alone(9);
  RandomState mixed(9);
  const uint64_t site = hash_text("a");
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < i; ++j) mixed.next(Purpose::dropout, hash_text("b"));
    EXPECT_EQ(alone.next(Purpose::dropout, site).bits(0),
              mixed.next(Purpose::dropout, site).bits(0));
  }
}

TEST(RandomState, SetPosition_StartsTheCallsAnew) {
  RandomState state(9);
  const uint64_t site = hash_text("a");
  state.set_position(3, 4);
  EXPECT_EQ(state.step(), 3u);
  EXPECT_EQ(state.micro_batch(), 4u);
  EXPECT_EQ(state.seed(), 9u);
  const uint32_t first = state.next(Purpose::dropout, site).bits(0);
  state.set_position(3, 5);
  EXPECT_NE(state.next(Purpose::dropout, site).bits(0), first);
  state.set_position(3, 4);
  EXPECT_EQ(state.next(Purpose::dropout, site).bits(0), first);
}

TEST(RandomState, Restore_ReplaysTheSameDraws) {
  RandomState state(9);
  state.set_position(1, 2);
  const uint64_t a = hash_text("a");
  const uint64_t b = hash_text("b");
  state.next(Purpose::dropout, a);
  const RandomState::Snapshot before = state.snapshot();
  const auto draw = [&] {
    std::vector<uint32_t> words;
    for (const uint64_t site : {a, b, a, a}) {
      words.push_back(state.next(Purpose::dropout, site).bits(0));
    }
    return words;
  };
  const std::vector<uint32_t> forward = draw();
  state.set_position(1, 3);
  const RandomState::Snapshot later = state.snapshot();
  const std::vector<uint32_t> other = draw();
  EXPECT_NE(forward, other);
  state.restore(before);
  EXPECT_EQ(draw(), forward);
  state.restore(later);
  EXPECT_EQ(state.micro_batch(), 3u);
  EXPECT_EQ(draw(), other);
}

}  // namespace philox_test
}  // namespace zinc
