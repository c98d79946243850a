// The f32, bf16 and f16 paths of unary.
#include "kernels/unary.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/unary_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/op_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE LaneVec constant(float value) { return hn::Set(Lanes(), value); }

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

template <UnaryOp kOp>
HWY_INLINE LaneVec value(LaneVec x) {
  const Lanes d;
  if constexpr (kOp == UnaryOp::neg) return hn::Neg(x);
  if constexpr (kOp == UnaryOp::abs) return hn::Abs(x);
  if constexpr (kOp == UnaryOp::square) return hn::Mul(x, x);
  if constexpr (kOp == UnaryOp::sqrt) return hn::Sqrt(x);
  if constexpr (kOp == UnaryOp::rsqrt) return hn::Div(constant(1.0f), hn::Sqrt(x));
  if constexpr (kOp == UnaryOp::reciprocal) return hn::Div(constant(1.0f), x);
  if constexpr (kOp == UnaryOp::exp) return exp_lanes(x);
  if constexpr (kOp == UnaryOp::log) return log_lanes(x);
  if constexpr (kOp == UnaryOp::tanh) return tanh_lanes(x);
  if constexpr (kOp == UnaryOp::sigmoid) return SigmoidLanes(x).value;
  if constexpr (kOp == UnaryOp::relu) return hn::IfThenZeroElse(hn::Le(x, hn::Zero(d)), x);
  if constexpr (kOp == UnaryOp::silu) return SiluLanes::value(x);
}

template <UnaryOp kOp>
HWY_INLINE LaneVec gradient(LaneVec x, LaneVec dy) {
  const Lanes d;
  if constexpr (kOp == UnaryOp::neg) return hn::Neg(dy);
  if constexpr (kOp == UnaryOp::abs) {
    const auto signed_dy = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Neg(dy), dy);
    return hn::IfThenZeroElse(hn::Eq(x, hn::Zero(d)), signed_dy);
  }
  if constexpr (kOp == UnaryOp::square) return hn::Mul(dy, hn::Add(x, x));
  if constexpr (kOp == UnaryOp::sqrt) {
    return hn::Div(hn::Mul(dy, constant(0.5f)), hn::Sqrt(x));
  }
  if constexpr (kOp == UnaryOp::rsqrt) {
    return hn::Div(hn::Mul(dy, constant(-0.5f)), hn::Mul(x, hn::Sqrt(x)));
  }
  if constexpr (kOp == UnaryOp::reciprocal) return hn::Neg(hn::Div(hn::Div(dy, x), x));
  if constexpr (kOp == UnaryOp::exp) return hn::Mul(dy, exp_lanes(x));
  if constexpr (kOp == UnaryOp::log) return hn::Div(dy, x);
  if constexpr (kOp == UnaryOp::tanh) {
    const auto e = exp_lanes(hn::Mul(constant(-2.0f), hn::Abs(x)));
    const auto one_more = hn::Add(constant(1.0f), e);
    const auto slope = hn::Div(hn::Mul(constant(4.0f), e), hn::Mul(one_more, one_more));
    return hn::Mul(dy, slope);
  }
  if constexpr (kOp == UnaryOp::sigmoid) return hn::Mul(dy, SigmoidLanes(x).slope);
  if constexpr (kOp == UnaryOp::relu) return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), dy);
  if constexpr (kOp == UnaryOp::silu) return hn::Mul(dy, SiluLanes::slope(x));
}

template <class T, UnaryOp kOp>
void forward(const Unary& args) {
  const T* x = args.x.data_as<T>();
  T* y = args.y.data_as<T>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store)
          HWY_ATTR { store(value<kOp>(load(x + at[0])), y + at[1]); },
      args.x, args.y);
}

template <class T, UnaryOp kOp>
void backward(const UnaryBackward& args) {
  const T* x = args.x.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  T* dx = args.dx.data_as<T>();
  for_each_element_vector(
      args.x.shape(),
      [=](const auto& at, auto load, auto store)
          HWY_ATTR { store(gradient<kOp>(load(x + at[0]), load(dy + at[1])), dx + at[2]); },
      args.x, args.dy, args.dx);
}

void unary_vectors(const Unary& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() {
    dispatch_unary(args.op, [&]<UnaryOp kOp>() { forward<T, kOp>(args); });
  });
}

void unary_backward_vectors(const UnaryBackward& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() {
    dispatch_unary(args.op, [&]<UnaryOp kOp>() { backward<T, kOp>(args); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(unary_vectors);
HWY_EXPORT(unary_backward_vectors);

void unary_lanes(const Unary& args) { HWY_DYNAMIC_DISPATCH(unary_vectors)(args); }
void unary_backward_lanes(const UnaryBackward& args) {
  HWY_DYNAMIC_DISPATCH(unary_backward_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
