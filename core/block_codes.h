// core/block_codes.h: the values that the codes of block formats stand for, ascending:
// core/block_format.h.
#pragma once

#include <array>
#include <cstddef>

namespace zinc {

inline constexpr std::array<float, 16> kNf4Values{
    -1.0f,          -0.6961928010f, -0.5250730515f, -0.3949174881f,
    -0.2844413817f, -0.1847734302f, -0.0910500363f, 0.0f,
    0.0795802996f,  0.1609302014f,  0.2461123019f,  0.3379152417f,
    0.4407098293f,  0.5626170039f,  0.7229568362f,  1.0f};

// The upper half of the dynamic map: midpoints of 2^e equal parts of [0.1, 1], times 10^(e - 6),
// for e from 0 to 6, in f32 at each step; then 1.
// clang-format off
inline constexpr std::array<float, 128> kDynamicMapUpper{
    5.5000004e-07f, 3.2500002e-06f, 7.75e-06f, 2.1249998e-05f, 4.375e-05f, 6.625e-05f, 8.875e-05f,
    1.5625001e-04f, 2.6875004e-04f, 3.8125002e-04f, 4.9375003e-04f, 6.062501e-04f, 7.1875006e-04f,
    8.3125e-04f, 9.437501e-04f, 1.2812499e-03f, 1.84375e-03f, 2.40625e-03f, 2.96875e-03f,
    3.5312497e-03f, 4.09375e-03f, 4.6562497e-03f, 5.2187503e-03f, 5.78125e-03f, 6.34375e-03f,
    6.90625e-03f, 7.46875e-03f, 8.03125e-03f, 8.59375e-03f, 9.156249e-03f, 9.71875e-03f,
    1.140625e-02f, 1.421875e-02f, 1.703125e-02f, 1.9843752e-02f, 2.265625e-02f, 2.546875e-02f,
    2.8281251e-02f, 3.109375e-02f, 3.390625e-02f, 3.6718752e-02f, 3.953125e-02f, 4.2343747e-02f,
    4.515625e-02f, 4.796875e-02f, 5.078125e-02f, 5.359375e-02f, 5.640625e-02f, 5.9218753e-02f,
    6.203125e-02f, 6.484375e-02f, 6.7656256e-02f, 7.0468746e-02f, 7.328125e-02f, 7.609375e-02f,
    7.890625e-02f, 8.171876e-02f, 8.453125e-02f, 8.734375e-02f, 9.015625e-02f, 9.2968754e-02f,
    9.578126e-02f, 9.859375e-02f, 1.07031256e-01f, 1.2109375e-01f, 1.3515624e-01f, 1.4921875e-01f,
    1.6328125e-01f, 1.7734376e-01f, 1.9140625e-01f, 2.0546874e-01f, 2.1953125e-01f,
    2.3359375e-01f, 2.4765624e-01f, 2.6171875e-01f, 2.7578127e-01f, 2.8984374e-01f,
    3.0390626e-01f, 3.1796873e-01f, 3.3203125e-01f, 3.4609374e-01f, 3.6015624e-01f,
    3.7421876e-01f, 3.8828123e-01f, 4.0234375e-01f, 4.1640624e-01f, 4.3046874e-01f,
    4.4453126e-01f, 4.5859373e-01f, 4.7265625e-01f, 4.867187e-01f, 5.0078124e-01f, 5.148437e-01f,
    5.289062e-01f, 5.4296875e-01f, 5.570313e-01f, 5.710938e-01f, 5.8515626e-01f, 5.992187e-01f,
    6.1328125e-01f, 6.273438e-01f, 6.414063e-01f, 6.5546876e-01f, 6.695312e-01f, 6.8359375e-01f,
    6.976563e-01f, 7.117188e-01f, 7.2578126e-01f, 7.398437e-01f, 7.5390625e-01f, 7.679688e-01f,
    7.8203124e-01f, 7.9609376e-01f, 8.101562e-01f, 8.2421875e-01f, 8.382813e-01f, 8.5234374e-01f,
    8.6640626e-01f, 8.804687e-01f, 8.9453125e-01f, 9.085938e-01f, 9.2265624e-01f, 9.3671876e-01f,
    9.507812e-01f, 9.6484375e-01f, 9.789063e-01f, 9.9296874e-01f, 1.e+00f,};
// clang-format on

// The lower half is 0 and the negatives of the upper half, without -1.
constexpr std::array<float, 256> make_dynamic_map() {
  std::array<float, 256> map{};
  for (size_t i = 0; i < 128; ++i) map[128 + i] = kDynamicMapUpper[i];
  for (size_t i = 0; i < 127; ++i) map[126 - i] = -kDynamicMapUpper[i];
  return map;
}
inline constexpr std::array<float, 256> kDynamicMap = make_dynamic_map();

}  // namespace zinc
