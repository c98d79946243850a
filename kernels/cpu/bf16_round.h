// kernels/cpu/bf16_round.h: bias and rounding of the sums of a bf16 product that are in registers.
#pragma once

#include "core/dtype.h"
#include "kernels/cpu/bf16_panels.h"

#ifdef ZINC_BF16_DOT
namespace zinc::kernels::cpu {

// The first `count` of 16; none where it is not positive.
inline __mmask16 first_lanes(int64_t count) {
  if (count <= 0) return 0;
  return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1);
}

// The first `count` of 32 elements of bf16; none where it is not positive.
inline __mmask32 first_elements(int64_t count) {
  if (count <= 0) return 0;
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

// Round to nearest even, bit for bit as core/float16.h. The instruction would take subnormals for
// zero.
ZINC_BF16_DOT inline __m256i round_to_bf16(__m512 x) {
  constexpr int kSubnormal = 0x20;
  const __mmask16 subnormal = _mm512_fpclass_ps_mask(x, kSubnormal);
  const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  if (subnormal == 0) [[likely]] {
    return rounded;
  }
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  return _mm256_mask_blend_epi16(subnormal, rounded,
                                 _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

// 16 elements of a bias of f32 or bf16 from `column` on.
ZINC_BF16_DOT inline __m512 load_bias(const void* bias, DType dtype, int64_t column,
                                      __mmask16 mask) {
  if (dtype == DType::f32) {
    return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(bias) + column);
  }
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(bias) + column);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

}  // namespace zinc::kernels::cpu
#endif
