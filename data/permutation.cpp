#include "data/permutation.h"

#include <bit>

#include "core/error.h"

namespace zinc::data {

Permutation::Permutation(int64_t n, const RandomKey& key) : n_(n) {
  require(n >= 1, "permutation: of ", n, " elements");
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  half_bits_ = (bits + 1) / 2;
  for (size_t round = 0; round < kRounds; ++round) {
    const PhiloxBlock block = philox4x32(round, key.counter_high, key.key);
    round_keys_[round] = (uint64_t{block.word[1]} << 32) | block.word[0];
  }
}

uint64_t Permutation::encrypt(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_, right = x & mask;
  for (const uint64_t key : round_keys_) {
    const uint64_t mixed = left ^ (mix_bits(right ^ key) & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator[](int64_t i) const {
  require(0 <= i && i < n_, "permutation: element ", i, " of ", n_);
  uint64_t x = static_cast<uint64_t>(i);
  do {
    x = encrypt(x);
  } while (x >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(x);
}

}  // namespace zinc::data
