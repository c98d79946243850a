// kernels/cpu/activation-inl.h: GELU, SiLU and their derivatives on vectors of f32 lanes.
//
// Included once per Highway target, like lanes-inl.h. The formulas avoid the cancellation in
// 1 + tanh(u) and 1 + erf(z): the relative error of a value stays below 5e-7 for |x| <= 4 and below
// 6e-6 for |x| <= 9, where the exponent's own rounding tells.
#if defined(ZINC_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_ACTIVATION_INL_H_
#undef ZINC_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define ZINC_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// s = 1 / (1 + exp(-x)) and its derivative s (1 - s), both without cancellation.
struct SigmoidLanes {
  LaneVec value;
  LaneVec slope;

  explicit HWY_INLINE SigmoidLanes(LaneVec x) {
    const Lanes d;
    const auto e = exp_bounded_lanes(hn::Neg(hn::Abs(x)));
    const auto inverse = hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), e));
    const auto small = hn::Mul(e, inverse);
    value = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, inverse);
    slope = hn::Mul(small, inverse);
  }
};

struct SiluLanes {
  static HWY_INLINE LaneVec value(LaneVec x) { return hn::Mul(x, SigmoidLanes(x).value); }
  static HWY_INLINE LaneVec slope(LaneVec x) {
    const SigmoidLanes s(x);
    return hn::MulAdd(x, s.slope, s.value);
  }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanhLanes {
  static constexpr float kTwoRoots = 1.5957691216057308f;  // 2 sqrt(2/pi)
  static constexpr float kCubic = 0.044715f;

  static HWY_INLINE SigmoidLanes gate(LaneVec x, LaneVec square) {
    const Lanes d;
    const auto inner = hn::MulAdd(square, hn::Set(d, kTwoRoots * kCubic), hn::Set(d, kTwoRoots));
    return SigmoidLanes(hn::Mul(inner, x));
  }
  static HWY_INLINE LaneVec value(LaneVec x) { return hn::Mul(x, gate(x, hn::Mul(x, x)).value); }
  static HWY_INLINE LaneVec slope(LaneVec x) {
    const Lanes d;
    const auto square = hn::Mul(x, x);
    const SigmoidLanes s = gate(x, square);
    // d(2u)/dx
    const auto du =
        hn::MulAdd(square, hn::Set(d, 3.0f * kTwoRoots * kCubic), hn::Set(d, kTwoRoots));
    // The derivative of the sigmoid is 0 for large x, where x * du may overflow.
    const auto bend = hn::Mul(s.slope, hn::Mul(x, du));
    const auto large = hn::Gt(hn::Abs(x), hn::Set(d, 1e6f));
    return hn::Add(s.value, hn::IfThenZeroElse(large, bend));
  }
};

// x Phi(x), Phi the standard normal distribution function.
struct GeluErfLanes {
  struct Normal {
    LaneVec distribution;  // Phi(x)
    LaneVec exponential;   // exp(-x^2 / 2)
  };
  static HWY_INLINE Normal normal(LaneVec x) {
    const Lanes d;
    // z = |x| / sqrt(2); beyond 13.5 the tail is below the smallest normal float.
    const auto z = hn::Min(hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f)), hn::Set(d, 13.5f));
    // exp(z^2) erfc(z) as a polynomial in t = (z - 2) / (z + 2): a minimax fit by Lawson's
    // iteration on [0, 11], relative error 3.6e-8.
    const auto two = hn::Set(d, 2.0f);
    const auto t = hn::Div(hn::Sub(z, two), hn::Add(z, two));
    auto p = hn::Set(d, 0.00011026002903236076f);
    p = hn::MulAdd(p, t, hn::Set(d, 6.695331103401259e-05f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.0009289525332860649f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.0008581751608289778f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.00697887409478426f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.0037358650006353855f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.07897602021694183f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.24165785312652588f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.42718595266342163f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.25539568066596985f));
    // exp(-x^2 / 2) with the rounding error of the square put back.
    const auto half = hn::Set(d, 0.5f);
    const auto bounded = hn::Min(hn::Abs(x), hn::Set(d, 19.0f));
    const auto square = hn::Mul(bounded, bounded);
    const auto rest = hn::MulSub(bounded, bounded, square);
    const auto e = exp_bounded_lanes(hn::Neg(hn::Mul(square, half)));
    const auto exponential = hn::NegMulAdd(hn::Mul(rest, half), e, e);
    const auto tail = hn::Mul(hn::Mul(p, exponential), half);
    const auto negative = hn::Lt(x, hn::Zero(d));
    return {hn::IfThenElse(negative, tail, hn::Sub(hn::Set(d, 1.0f), tail)), exponential};
  }
  static HWY_INLINE LaneVec value(LaneVec x) { return hn::Mul(x, normal(x).distribution); }
  static HWY_INLINE LaneVec slope(LaneVec x) {
    const Normal n = normal(x);
    const auto density = hn::Mul(n.exponential, hn::Set(Lanes(), 0.3989422804014327f));
    return hn::MulAdd(x, density, n.distribution);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
