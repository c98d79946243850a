// kernels/cpu/lane_number-inl.h: a vector of f32 lanes as a number, with the vocabulary of
// kernels/elementwise_table.h.
//
// Included once per Highway target, like lanes-inl.h.
#if defined(ZINC_KERNELS_CPU_LANE_NUMBER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_LANE_NUMBER_INL_H_
#undef ZINC_KERNELS_CPU_LANE_NUMBER_INL_H_
#else
#define ZINC_KERNELS_CPU_LANE_NUMBER_INL_H_
#endif

#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE LaneVec constant(float value) { return hn::Set(Lanes(), value); }

struct LaneMask {
  hn::Mask<Lanes> lanes;
  friend HWY_INLINE LaneMask operator&&(LaneMask a, LaneMask b) {
    return {hn::And(a.lanes, b.lanes)};
  }
  friend HWY_INLINE LaneMask operator||(LaneMask a, LaneMask b) {
    return {hn::Or(a.lanes, b.lanes)};
  }
};

struct LaneNumber {
  LaneVec lanes;
  explicit HWY_INLINE LaneNumber(LaneVec from) : lanes(from) {}
  explicit HWY_INLINE LaneNumber(double value) : lanes(constant(static_cast<float>(value))) {}

#define ZINC_OPERATOR(sign, function)                                      \
  friend HWY_INLINE LaneNumber operator sign(LaneNumber a, LaneNumber b) { \
    return LaneNumber(hn::function(a.lanes, b.lanes));                     \
  }
  ZINC_OPERATOR(+, Add)
  ZINC_OPERATOR(-, Sub)
  ZINC_OPERATOR(*, Mul)
  ZINC_OPERATOR(/, Div)
#undef ZINC_OPERATOR
#define ZINC_COMPARISON(sign, function)                                  \
  friend HWY_INLINE LaneMask operator sign(LaneNumber a, LaneNumber b) { \
    return {hn::function(a.lanes, b.lanes)};                             \
  }
  ZINC_COMPARISON(==, Eq)
  ZINC_COMPARISON(<, Lt)
  ZINC_COMPARISON(<=, Le)
  ZINC_COMPARISON(>, Gt)
  ZINC_COMPARISON(>=, Ge)
#undef ZINC_COMPARISON
  // A NaN is unequal, which the instruction behind hn::Ne does not say.
  friend HWY_INLINE LaneMask operator!=(LaneNumber a, LaneNumber b) {
    return {hn::Not(hn::Eq(a.lanes, b.lanes))};
  }
  friend HWY_INLINE LaneNumber operator-(LaneNumber a) { return LaneNumber(hn::Neg(a.lanes)); }
};

HWY_INLINE LaneNumber select(LaneMask mask, LaneNumber a, LaneNumber b) {
  return LaneNumber(hn::IfThenElse(mask.lanes, a.lanes, b.lanes));
}
HWY_INLINE LaneNumber fma(LaneNumber a, LaneNumber b, LaneNumber c) {
  return LaneNumber(fma_lanes(a.lanes, b.lanes, c.lanes));
}
HWY_INLINE LaneMask is_nan(LaneNumber x) { return {hn::IsNaN(x.lanes)}; }

// log(x) within 1 unit in the last place. x = 2^k m with sqrt(1/2) <= m < sqrt(2); log(m) = 2
// atanh(s) with s = f / (2 + f), f = m - 1, whose series in s^2 <= 0.0295 is cut after s^8 / 9,
// below 3e-8 of the s^3 term; the terms are added from the smallest up.
HWY_INLINE LaneVec log_lanes(LaneVec x) {
  const Lanes d;
  const hn::Rebind<int32_t, Lanes> di;
  const auto tiny = hn::Lt(x, constant(0x1p-126f));
  const auto scaled = hn::IfThenElse(tiny, hn::Mul(x, constant(0x1p23f)), x);
  const auto bits = hn::BitCast(di, scaled);
  // Subtracting the bits of sqrt(1/2) puts the cut between exponents there.
  const auto offset = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  const auto exponent = hn::ShiftRight<23>(offset);
  const auto m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const auto k = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(tiny, constant(23.0f)));
  const auto f = hn::Sub(m, constant(1.0f));
  const auto s = hn::Div(f, hn::Add(f, constant(2.0f)));
  const auto z = hn::Mul(s, s);
  auto p = constant(2.0f / 9.0f);
  p = hn::MulAdd(p, z, constant(2.0f / 7.0f));
  p = hn::MulAdd(p, z, constant(2.0f / 5.0f));
  p = hn::MulAdd(p, z, constant(2.0f / 3.0f));
  p = hn::Mul(p, z);
  const auto half_square = hn::Mul(constant(0.5f), hn::Mul(f, f));
  // ln 2 in two parts, the first with trailing zeros so that k times it is exact.
  const auto low = hn::MulAdd(s, hn::Add(half_square, p), hn::Mul(k, constant(-2.12194440e-4f)));
  auto y = hn::MulAdd(k, constant(0.693359375f), hn::Sub(f, hn::Sub(half_square, low)));
  const auto infinity = hn::Inf(d);
  y = hn::IfThenElse(hn::Eq(x, infinity), x, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  // Negative or NaN.
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), y, hn::NaN(d));
}

// tanh(x) within 2 units in the last place: x + x^3 P(x^2) below 0.625, P of degree 4 fitted there
// with a relative error of 9e-9 (Lawson's iteration), else 1 - 2 / (exp(2 |x|) + 1) with the sign
// of x.
HWY_INLINE LaneVec tanh_lanes(LaneVec x) {
  const auto magnitude = hn::Abs(x);
  const auto z = hn::Mul(x, x);
  auto p = constant(-0.005704935f);
  p = hn::MulAdd(p, z, constant(0.020639043f));
  p = hn::MulAdd(p, z, constant(-0.0537397f));
  p = hn::MulAdd(p, z, constant(0.13331442f));
  p = hn::MulAdd(p, z, constant(-0.3333328f));
  const auto small = hn::MulAdd(hn::Mul(x, z), p, x);
  const auto e = exp_lanes(hn::Add(magnitude, magnitude));
  const auto tail = hn::Div(constant(2.0f), hn::Add(e, constant(1.0f)));
  const auto large = hn::CopySignToAbs(hn::Sub(constant(1.0f), tail), x);
  return hn::IfThenElse(hn::Lt(magnitude, constant(0.625f)), small, large);
}

// erf(x): below 1 its Maclaurin series (DLMF 7.6.1) as x + x P(x^2), cut after x^23, at most 2e-10
// of the sum; else 1 - erfc(|x|) with the sign of x, where erfc is twice the normal distribution's
// tail at -sqrt(2) |x|.
HWY_INLINE LaneVec erf_lanes(LaneVec x) {
  const Lanes d;
  // (-1)^n 2 / (sqrt(pi) n! (2n + 1)), the first less 1.
  constexpr float kSeries[] = {1.2837917e-1f, -3.7612639e-1f, 1.1283792e-1f, -2.6866171e-2f,
                               5.2239777e-3f, -8.5483270e-4f, 1.2055333e-4f, -1.4925650e-5f,
                               1.6462115e-6f, -1.6365845e-7f, 1.4807192e-8f, -1.2290559e-9f};
  const auto magnitude = hn::Abs(x);
  const auto z = hn::Mul(x, x);
  auto p = constant(kSeries[11]);
  for (int n = 10; n >= 0; --n) p = hn::MulAdd(p, z, constant(kSeries[n]));
  const auto small = hn::MulAdd(x, p, x);
  const auto root = constant(-1.41421356f);
  const auto tail = GeluErfLanes::normal(hn::Mul(magnitude, root)).distribution;
  const auto large = hn::NegMulAdd(constant(2.0f), tail, constant(1.0f));
  const auto y =
      hn::IfThenElse(hn::Lt(magnitude, constant(1.0f)), small, hn::CopySignToAbs(large, x));
  return hn::IfThenElse(hn::IsNaN(x), hn::NaN(d), y);
}

// log(1 + x) for 0 <= x <= 1: the logarithm of the rounded u = 1 + x, corrected by x / (u - 1)
// (D. Goldberg, What every computer scientist should know about floating-point arithmetic, th. 4).
HWY_INLINE LaneVec log1p_lanes(LaneVec x) {
  const auto u = hn::Add(constant(1.0f), x);
  const auto rounded = hn::Sub(u, constant(1.0f));
  const auto y = hn::Div(hn::Mul(log_lanes(u), x), rounded);
  return hn::IfThenElse(hn::Eq(rounded, hn::Zero(Lanes())), x, y);
}

// x^p as exp(p log |x|): a relative error of 3 units in the last place, and of |p log |x|| units
// for the rounding of the exponent. A finite negative x has a power where p is whole.
HWY_INLINE LaneVec power_lanes(LaneVec x, LaneVec p) {
  const Lanes d;
  const auto magnitude = hn::Abs(x);
  auto y = exp_lanes(hn::Mul(p, log_lanes(magnitude)));
  const auto half = hn::Mul(p, constant(0.5f));
  const auto whole = hn::Eq(hn::Round(p), p);
  const auto odd = hn::And(whole, hn::Ne(hn::Round(half), half));
  y = hn::IfThenElse(odd, hn::CopySignToAbs(y, x), y);
  const auto has_none = hn::And(hn::Lt(x, hn::Zero(d)), hn::Lt(magnitude, hn::Inf(d)));
  y = hn::IfThenElse(hn::AndNot(whole, has_none), hn::NaN(d), y);
  const auto one = constant(1.0f);
  y = hn::IfThenElse(hn::Or(hn::Eq(p, hn::Zero(d)), hn::Eq(x, one)), one, y);
  return hn::IfThenElse(hn::Eq(p, one), x, y);
}

#define ZINC_FUNCTION(name, expression) \
  HWY_INLINE LaneNumber name(LaneNumber x) { return LaneNumber(expression); }
ZINC_FUNCTION(abs, hn::Abs(x.lanes))
ZINC_FUNCTION(sqrt, hn::Sqrt(x.lanes))
ZINC_FUNCTION(exp, exp_lanes(x.lanes))
ZINC_FUNCTION(log, log_lanes(x.lanes))
ZINC_FUNCTION(log1p, log1p_lanes(x.lanes))
ZINC_FUNCTION(tanh, tanh_lanes(x.lanes))
ZINC_FUNCTION(erf, erf_lanes(x.lanes))
ZINC_FUNCTION(sigmoid, SigmoidLanes(x.lanes).value)
ZINC_FUNCTION(sigmoid_derivative, SigmoidLanes(x.lanes).derivative)
ZINC_FUNCTION(silu_derivative, SiluLanes::derivative(x.lanes))
#undef ZINC_FUNCTION
HWY_INLINE LaneNumber tanh_derivative(LaneNumber x) {
  const LaneNumber e = exp(LaneNumber(-2.0) * abs(x));
  const LaneNumber one_more = LaneNumber(1.0) + e;
  return LaneNumber(4.0) * e / (one_more * one_more);
}
HWY_INLINE LaneNumber power(LaneNumber x, LaneNumber exponent) {
  return LaneNumber(power_lanes(x.lanes, exponent.lanes));
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
