// kernels/cpu/random_words-inl.h: the random words of a run of elements, by Philox on vectors: each
// lane computes one block of four words. And what they round.
//
// Included once per Highway target, like lanes-inl.h.

// Per-target include guard.
#if defined(ZINC_KERNELS_CPU_RANDOM_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_RANDOM_WORDS_INL_H_
#undef ZINC_KERNELS_CPU_RANDOM_WORDS_INL_H_
#else
#define ZINC_KERNELS_CPU_RANDOM_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/philox.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kRandomRun = 1024;  // elements whose random words are made at a time
// Room for a first element inside a block, and for two whole vectors of blocks and one of words at
// the end.
constexpr int64_t kRandomRoom = kRandomRun + 2 * 4 * 16 + 16;

#if ZINC_PORTABLE_LANES
HWY_INLINE void fill_random_blocks(const RandomKey& key, uint64_t first_block, int64_t blocks,
                                   uint32_t* words) {
  for (int64_t i = 0; i < blocks; ++i) {
    const PhiloxBlock block =
        philox4x32(first_block + static_cast<uint64_t>(i), key.counter_high, key.key);
    std::copy_n(block.word, 4, words + 4 * i);
  }
}
#else
// The words of the blocks [first_block, first_block + blocks), rounded up to two vectors. The
// rounds are those of philox4x32 in core/philox.h. A lane of 64 bits holds one word of a block in
// its low half; the high half may hold anything, because a product reads low halves only. So a
// round is two products, two shifts and two exclusive ors of three; two vectors at a time hide
// their latency.
HWY_INLINE void fill_random_blocks(const RandomKey& key, uint64_t first_block, int64_t blocks,
                                   uint32_t* words) {
  const hn::Repartition<uint64_t, Lanes> d;
  const hn::Repartition<uint32_t, Lanes> halves;
  const auto multiply = [=](auto a, auto factor) HWY_ATTR {
    return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, factor));
  };
  const auto m0 = hn::Set(d, uint64_t{0xD2511F53u});
  const auto m1 = hn::Set(d, uint64_t{0xCD9E8D57u});
  const auto low = hn::Set(d, uint64_t{0xFFFFFFFFu});
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  uint64_t round_keys[10][2];
  for (uint32_t round = 0; round < 10; ++round) {
    round_keys[round][0] = static_cast<uint32_t>(key.key) + round * 0x9E3779B9u;
    round_keys[round][1] = static_cast<uint32_t>(key.key >> 32) + round * 0xBB67AE85u;
  }
  const auto high = hn::Set(d, key.counter_high);
  for (int64_t i = 0; i < blocks; i += 2 * step) {
    auto a0 = hn::Iota(d, first_block + static_cast<uint64_t>(i));
    auto b0 = hn::Iota(d, first_block + static_cast<uint64_t>(i + step));
    auto a1 = hn::ShiftRight<32>(a0), b1 = hn::ShiftRight<32>(b0);
    auto a2 = high, b2 = high;
    auto a3 = hn::ShiftRight<32>(high), b3 = a3;
    for (const auto& round_key : round_keys) {
      const auto k0 = hn::Set(d, round_key[0]);
      const auto k1 = hn::Set(d, round_key[1]);
      const auto one_round = [&](auto& c0, auto& c1, auto& c2, auto& c3) HWY_ATTR {
        const auto p0 = multiply(c0, m0);
        const auto p1 = multiply(c2, m1);
        c0 = hn::Xor3(hn::ShiftRight<32>(p1), c1, k0);
        c2 = hn::Xor3(hn::ShiftRight<32>(p0), c3, k1);
        c1 = p1;
        c3 = p0;
      };
      one_round(a0, a1, a2, a3);
      one_round(b0, b1, b2, b3);
    }
    const auto put = [=](auto c0, auto c1, auto c2, auto c3, uint32_t* to) HWY_ATTR {
      const auto first_two = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
      const auto last_two = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
      hn::StoreInterleaved2(first_two, last_two, d, reinterpret_cast<uint64_t*>(to));
    };
    put(a0, a1, a2, a3, words + 4 * i);
    put(b0, b1, b2, b3, words + 4 * (i + step));
  }
}
#endif

// key.bits(first_element + i) for i < n <= kRandomRun. room: HWY_ALIGN, kRandomRoom words. A vector
// may be read from each of the n places behind the returned pointer.
HWY_INLINE const uint32_t* random_words(const RandomKey& key, int64_t first_element, int64_t n,
                                        uint32_t* room) {
  const auto element = static_cast<uint64_t>(first_element);
  const auto skipped = static_cast<int64_t>(element & 3);
  fill_random_blocks(key, element >> 2, (skipped + n + 3) / 4, room);
  return room + skipped;
}

// round_by_chance() of kernels/stochastic_rounding.h; random: words below 2^16.
HWY_INLINE LaneVec round_lanes_by_chance(LaneVec x, hn::Vec<hn::Rebind<uint32_t, Lanes>> random) {
  const hn::Rebind<uint32_t, Lanes> du;
  const auto bits = hn::BitCast(du, x);
  const auto exponent = hn::Set(du, 0x7f800000u);
  const auto rounded = hn::And(hn::Add(bits, random), hn::Set(du, 0xffff0000u));
  const auto is_special = hn::Eq(hn::And(bits, exponent), exponent);
  return hn::BitCast(Lanes(), hn::IfThenElse(is_special, bits, rounded));
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
