// data/permutation.h: a random order of n elements that needs no table.
#pragma once

#include <array>
#include <cstdint>

#include "core/philox.h"

namespace zinc::data {

// A bijection of [0, n), chosen by `key`: a balanced Feistel network over the smallest even number
// of bits that holds n, repeated until the value falls below n (cycle walking; Black and Rogaway,
// "Ciphers with arbitrary finite domains", CT-RSA 2002). Any element costs at most four rounds of
// the network on average and no memory, so every rank finds its own samples.
class Permutation {
 public:
  Permutation(int64_t n, const RandomKey& key);  // n >= 1

  int64_t size() const { return n_; }
  int64_t operator[](int64_t i) const;  // 0 <= i < n

 private:
  static constexpr int kRounds = 8;
  uint64_t encrypt(uint64_t x) const;

  int64_t n_;
  int half_bits_;
  std::array<uint64_t, kRounds> round_keys_;
};

}  // namespace zinc::data
