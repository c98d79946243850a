// core/philox.h: counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011, section 3.3).
//
// Every random value of zinc is a pure function of (seed, purpose, step, micro-batch, site,
// element): nothing depends on partition, placement, schedule or recomputation.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/host_device.h"

namespace zinc {

enum class Purpose : uint32_t {
  initialize = 1,
  dropout = 2,
  data_order = 3,
  sampling = 4,
  test = 5,
  masking = 6,
  sparsity = 7,
};

struct PhiloxBlock {
  uint32_t word[4];
};

// Ten rounds on a 128-bit counter under a 64-bit key.
ZINC_HOST_DEVICE inline PhiloxBlock philox4x32(uint64_t counter_low, uint64_t counter_high,
                                               uint64_t key) {
  uint32_t c0 = static_cast<uint32_t>(counter_low);
  uint32_t c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high);
  uint32_t c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Names a stream of random numbers; element i of it is word i % 4 of block i / 4.
struct RandomKey {
  uint64_t key = 0;           // the seed
  uint64_t counter_high = 0;  // hash of everything else that the stream depends on

  ZINC_HOST_DEVICE uint32_t bits(uint64_t element) const {
    return philox4x32(element >> 2, counter_high, key).word[element & 3];
  }
  // Uniform in (0, 1): the top 23 bits of the word plus a half, times 2^-23; exact in f32, so that
  // every device gives the same bits.
  ZINC_HOST_DEVICE float uniform(uint64_t element) const { return to_uniform(bits(element)); }
  ZINC_HOST_DEVICE static float to_uniform(uint32_t word) {
    return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
  }
};

// SplitMix64's finaliser (Steele et al., OOPSLA 2014): a bijection with good avalanche.
constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
constexpr uint64_t combine_bits(uint64_t a, uint64_t b) { return mix_bits(a ^ mix_bits(b)); }

// FNV-1a then mixed; stable across machines and releases. Names a site by its module path.
constexpr uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix_bits(hash);
}

constexpr RandomKey make_random_key(uint64_t seed, Purpose purpose, uint64_t step,
                                    uint64_t micro_batch, uint64_t site) {
  uint64_t hash = mix_bits(static_cast<uint64_t>(purpose));
  hash = combine_bits(hash, step);
  hash = combine_bits(hash, micro_batch);
  hash = combine_bits(hash, site);
  return {.key = seed, .counter_high = hash};
}

}  // namespace zinc
