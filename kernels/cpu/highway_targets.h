// kernels/cpu/highway_targets.h: which SIMD targets are compiled; included before any hwy header.
//
// Targets without fused multiply-add are left out: an explicit fma must be one everywhere. A CPU
// that has none of the targets runs Highway's portable code. AVX3_DL adds nothing that float
// kernels use.
#pragma once

#ifndef HWY_DISABLED_TARGETS
// 1 << 14 is HWY_SSE2, which older Highway headers do not name.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | (1LL << 14))
#endif
