// kernels/cpu/lanes-inl.h: vectors of f32 lanes loaded from and rounded to the three short float
// dtypes, and u8.
//
// Included once per Highway target, inside a translation unit that includes hwy/foreach_target.h.
// Rounding to bf16 is integer round-to-nearest-even with quiet NaNs, bit for bit that of
// core/float16.h, for f16 too. `count` lanes are touched in memory, the others read as
// zero.

// Per-target include guard.
#if defined(ZINC_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_LANES_INL_H_
#undef ZINC_KERNELS_CPU_LANES_INL_H_
#else
#define ZINC_KERNELS_CPU_LANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/float16.h"

// True for Highway's portable targets: no hardware f16 and no fused multiply-add behind MulAdd.
#undef ZINC_PORTABLE_LANES
#define ZINC_PORTABLE_LANES (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;
using LaneVec = hn::Vec<Lanes>;

HWY_INLINE int64_t lane_count() { return static_cast<int64_t>(hn::Lanes(Lanes())); }

HWY_INLINE LaneVec load_lanes(const float* from) { return hn::LoadU(Lanes(), from); }
HWY_INLINE LaneVec load_lanes(const bf16* from) {
  const hn::Rebind<uint16_t, Lanes> narrow;
  const hn::Rebind<uint32_t, Lanes> wide;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(Lanes(), hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}
HWY_INLINE LaneVec load_lanes(const f16* from) {
#if ZINC_PORTABLE_LANES
  float wide[HWY_LANES(float)];
  for (size_t i = 0; i < HWY_LANES(float); ++i) wide[i] = static_cast<float>(from[i]);
  return hn::LoadU(Lanes(), wide);
#else
  const hn::Rebind<hwy::float16_t, Lanes> narrow;
  const hn::Rebind<uint16_t, Lanes> narrow_bits;
  const hn::Rebind<uint32_t, Lanes> wide;
  const auto value =
      hn::PromoteTo(Lanes(), hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
  // The hardware makes a signalling NaN quiet; float16.h keeps its bits.
  const auto bits =
      hn::PromoteTo(wide, hn::LoadU(narrow_bits, reinterpret_cast<const uint16_t*>(from)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(wide, 0x8000u)));
  const auto payload = hn::ShiftLeft<13>(hn::And(bits, hn::Set(wide, 0x3ffu)));
  const auto nan = hn::Or(hn::Or(sign, payload), hn::Set(wide, 0x7f800000u));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(Lanes(), nan), value);
#endif
}

HWY_INLINE LaneVec load_lanes(const uint8_t* from) {
  const hn::Rebind<int32_t, Lanes> whole;
  return hn::ConvertTo(Lanes(),
                       hn::PromoteTo(whole, hn::LoadU(hn::Rebind<uint8_t, Lanes>(), from)));
}

HWY_INLINE void store_lanes(LaneVec value, float* to) { hn::StoreU(value, Lanes(), to); }
// The bits of the lanes as bf16, in the upper halves of the words.
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, Lanes>> bf16_words(LaneVec value) {
  const hn::Rebind<uint32_t, Lanes> wide;
  const auto bits = hn::BitCast(wide, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(wide, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(wide, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(value)), quiet, rounded);
}
// The same in a vector of half the size.
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, Lanes>> short_bits(LaneVec value, const bf16*) {
  const hn::Rebind<uint16_t, Lanes> narrow;
  const auto words = bf16_words(value);
#if ZINC_PORTABLE_LANES
  const hn::Rebind<int32_t, Lanes> wide_signed;
  return hn::DemoteTo(narrow, hn::BitCast(wide_signed, hn::ShiftRight<16>(words)));
#else
  const hn::Repartition<uint16_t, Lanes> halves;
  const auto parts = hn::BitCast(halves, words);
  return hn::LowerHalf(narrow, hn::ConcatOdd(halves, parts, parts));
#endif
}
#if !ZINC_PORTABLE_LANES
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, Lanes>> short_bits(LaneVec value, const f16*) {
  const hn::Rebind<hwy::float16_t, Lanes> narrow;
  // The hardware keeps a NaN's payload; float16.h has one NaN of each sign.
  const hn::Rebind<uint32_t, Lanes> wide;
  const auto quiet = hn::BitCast(Lanes(), hn::Set(wide, 0x7fc00000u));
  const auto nan = hn::CopySignToAbs(quiet, value);
  const auto one_nan = hn::IfThenElse(hn::IsNaN(value), nan, value);
  return hn::BitCast(hn::Rebind<uint16_t, Lanes>(), hn::DemoteTo(narrow, one_nan));
}
#endif
HWY_INLINE void store_lanes(LaneVec value, bf16* to) {
  hn::StoreU(short_bits(value, to), hn::Rebind<uint16_t, Lanes>(), reinterpret_cast<uint16_t*>(to));
}
HWY_INLINE void store_lanes(LaneVec value, f16* to) {
#if ZINC_PORTABLE_LANES
  float wide[HWY_LANES(float)];
  hn::StoreU(value, Lanes(), wide);
  for (size_t i = 0; i < HWY_LANES(float); ++i) to[i] = f16(wide[i]);
#else
  hn::StoreU(short_bits(value, to), hn::Rebind<uint16_t, Lanes>(), reinterpret_cast<uint16_t*>(to));
#endif
}
// Values from 0 to 255.
HWY_INLINE void store_lanes(LaneVec value, uint8_t* to) {
  const hn::Rebind<uint8_t, Lanes> narrow;
  const hn::Rebind<int32_t, Lanes> whole;
  hn::StoreU(hn::DemoteTo(narrow, hn::ConvertTo(whole, value)), narrow, to);
}

// As store_lanes(), past the caches where `to` is aligned to the vector (see past_caches.h). The
// thread calls hwy::FlushStream() before others may read.
HWY_INLINE void stream_lanes(LaneVec value, float* to) {
  if (reinterpret_cast<uintptr_t>(to) % sizeof(value) != 0) return store_lanes(value, to);
  hn::Stream(value, Lanes(), to);
}
template <class T>  // bf16 or f16
HWY_INLINE void stream_lanes(LaneVec value, T* to) {
#if ZINC_PORTABLE_LANES
  store_lanes(value, to);
#else
  const auto bits = short_bits(value, to);
  if (reinterpret_cast<uintptr_t>(to) % sizeof(bits) != 0) return store_lanes(value, to);
  hn::Stream(bits, hn::Rebind<uint16_t, Lanes>(), reinterpret_cast<uint16_t*>(to));
#endif
}
HWY_INLINE void stream_lanes(LaneVec value, uint8_t* to) { store_lanes(value, to); }

// Two vectors, one behind the other. In a shorter dtype they are one whole vector, or half of one.
#if !ZINC_PORTABLE_LANES
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, Lanes>> pair_bits(LaneVec a, LaneVec b, const bf16*) {
  const hn::Repartition<uint16_t, Lanes> halves;
  return hn::ConcatOdd(halves, hn::BitCast(halves, bf16_words(b)),
                       hn::BitCast(halves, bf16_words(a)));
}
HWY_INLINE hn::Vec<hn::Repartition<uint16_t, Lanes>> pair_bits(LaneVec a, LaneVec b,
                                                               const f16* to) {
  return hn::Combine(hn::Repartition<uint16_t, Lanes>(), short_bits(b, to), short_bits(a, to));
}
HWY_INLINE auto pair_bits(LaneVec a, LaneVec b, const uint8_t*) {
  const hn::Rebind<int32_t, Lanes> whole;
  const hn::Repartition<int16_t, Lanes> halves;
  const auto short_of = [&](LaneVec lanes)
                            HWY_ATTR { return hn::BitCast(halves, hn::ConvertTo(whole, lanes)); };
  return hn::DemoteTo(hn::Rebind<uint8_t, decltype(halves)>(),
                      hn::ConcatEven(halves, short_of(b), short_of(a)));
}
#endif
// store_lanes() or stream_lanes() of both.
template <class T>
HWY_INLINE void store_lane_pair(LaneVec a, LaneVec b, T* to, bool past_caches) {
#if !ZINC_PORTABLE_LANES
  if constexpr (sizeof(T) < sizeof(float)) {
    using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;
    const auto bits = pair_bits(a, b, to);
    const hn::DFromV<decltype(bits)> d;
    auto* place = reinterpret_cast<Bits*>(to);
    if (past_caches && reinterpret_cast<uintptr_t>(to) % sizeof(bits) == 0) {
      hn::Stream(bits, d, place);
    } else {
      hn::StoreU(bits, d, place);
    }
    return;
  }
#endif
  if (past_caches) {
    stream_lanes(a, to);
    stream_lanes(b, to + lane_count());
  } else {
    store_lanes(a, to);
    store_lanes(b, to + lane_count());
  }
}

// The first `count` < lane_count() lanes.
template <class T>
HWY_INLINE LaneVec load_some_lanes(const T* from, int64_t count) {
  T buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, from, static_cast<size_t>(count) * sizeof(T));
  return load_lanes(buffer);
}
template <class T>
HWY_INLINE void store_some_lanes(LaneVec value, T* to, int64_t count) {
  T buffer[HWY_MAX_BYTES / sizeof(float)];
  store_lanes(value, buffer);
  std::memcpy(to, buffer, static_cast<size_t>(count) * sizeof(T));
}

// a * b + c, rounded once on every target: what contracts that promise bits use.
HWY_INLINE LaneVec fma_lanes(LaneVec a, LaneVec b, LaneVec c) {
#if ZINC_PORTABLE_LANES
  float x[HWY_LANES(float)], y[HWY_LANES(float)], z[HWY_LANES(float)];
  hn::StoreU(a, Lanes(), x);
  hn::StoreU(b, Lanes(), y);
  hn::StoreU(c, Lanes(), z);
  for (size_t i = 0; i < HWY_LANES(float); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::LoadU(Lanes(), z);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Elements before the first at which a vector of T is aligned; 0 where none is.
template <class T>
HWY_INLINE int64_t head_of(const T* to) {
  const auto bytes = static_cast<uintptr_t>(lane_count()) * sizeof(T);
  const uintptr_t missing = (bytes - reinterpret_cast<uintptr_t>(to) % bytes) % bytes;
  return missing % sizeof(T) == 0 ? static_cast<int64_t>(missing / sizeof(T)) : 0;
}

// Calls body(begin, load, store) for every vector of [0, n), where load(pointer) and
// store(value, pointer) are the above for whole vectors and for the tail; `past_caches` chooses
// stream_lanes(). `head` elements, fewer than a vector, come first, by themselves.
template <class Body>
HWY_INLINE void for_each_vector(int64_t n, Body&& body, bool past_caches = false,
                                int64_t head = 0) {
  const int64_t lanes = lane_count();
  int64_t i = std::min(head, n);
  if (i > 0) {
    body(
        0, [i](const auto* from) HWY_ATTR { return load_some_lanes(from, i); },
        [i](LaneVec value, auto* to) HWY_ATTR { store_some_lanes(value, to, i); });
  }
  for (; i + lanes <= n; i += lanes) {
    body(
        i, [](const auto* from) HWY_ATTR { return load_lanes(from); },
        [past_caches](LaneVec value, auto* to) HWY_ATTR {
          if (past_caches) {
            stream_lanes(value, to);
          } else {
            store_lanes(value, to);
          }
        });
  }
  if (i < n) {
    const int64_t count = n - i;
    body(
        i, [count](const auto* from) HWY_ATTR { return load_some_lanes(from, count); },
        [count](LaneVec value, auto* to) HWY_ATTR { store_some_lanes(value, to, count); });
  }
}

// n = round(x / ln 2) is taken from the low bits of x / ln 2 + 1.5 * 2^23; the result is e^r with
// r = x - n ln 2, ln 2 in two parts (Cody and Waite): e^r = 1 + r + r^2 q(r) on [-ln2/2, ln2/2]
// with q a minimax fit of degree 4 (error 3.1e-9).
struct ExpParts {
  LaneVec power;                              // e^r
  hn::Vec<hn::Rebind<int32_t, Lanes>> whole;  // n in the low bits, beside `bias`

  HWY_INLINE ExpParts(LaneVec x, float bias) {
    const Lanes d;
    const auto magic = hn::Set(d, 12582912.0f + bias);
    const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
    const auto n = hn::Sub(shifted, magic);
    auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
    r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
    auto q = hn::Set(d, 0.0013814602280035615f);
    q = hn::MulAdd(q, r, hn::Set(d, 0.008368715643882751f));
    q = hn::MulAdd(q, r, hn::Set(d, 0.04166838899254799f));
    q = hn::MulAdd(q, r, hn::Set(d, 0.1666652113199234f));
    q = hn::MulAdd(q, r, hn::Set(d, 0.4999999403953552f));
    power = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
    whole = hn::BitCast(hn::Rebind<int32_t, Lanes>(), shifted);
  }
};

// exp(x) in f32, relative error below 2 ulp; 0 below -87.3 (no denormal results), +infinity above
// 88.72, NaN for NaN. n is added to the exponent of e^r, since 2^128 is no float.
HWY_INLINE LaneVec exp_lanes(LaneVec x) {
  const Lanes d;
  const hn::Rebind<int32_t, Lanes> di;
  const ExpParts e(x, 0.0f);
  const auto bits = hn::Add(hn::BitCast(di, e.power), hn::ShiftLeft<23>(e.whole));
  const auto y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365402f)), hn::BitCast(d, bits));
  // Beyond the end infinity, and NaN with NaN.
  return hn::IfThenElse(hn::Le(x, hn::Set(d, 88.7228317f)), y, hn::Add(x, hn::Inf(d)));
}

// exp(x) for x <= 88, in fewer steps than exp_lanes(): relative error below 2 ulp, 0 below -87.3,
// NaN for NaN, unspecified above 88. n arrives with the bias of an exponent.
HWY_INLINE LaneVec exp_bounded_lanes(LaneVec x) {
  const Lanes d;
  const ExpParts e(x, 127.0f);
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(e.whole));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365402f)), hn::Mul(e.power, scale));
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
