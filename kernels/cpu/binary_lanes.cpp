// The f32, bf16 and f16 paths of binary's forward pass.
#include "kernels/binary.h"

#include "kernels/cpu/binary_broadcast.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/binary_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/op_dispatch.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <BinaryOp kOp>
HWY_INLINE LaneVec value(LaneVec a, LaneVec b) {
  if constexpr (kOp == BinaryOp::add) return hn::Add(a, b);
  if constexpr (kOp == BinaryOp::sub) return hn::Sub(a, b);
  if constexpr (kOp == BinaryOp::mul) return hn::Mul(a, b);
  if constexpr (kOp == BinaryOp::div) return hn::Div(a, b);
  if constexpr (kOp == BinaryOp::max) {
    return hn::IfThenElse(hn::Or(hn::Ge(a, b), hn::IsNaN(a)), a, b);
  }
  if constexpr (kOp == BinaryOp::min) {
    return hn::IfThenElse(hn::Or(hn::Le(a, b), hn::IsNaN(a)), a, b);
  }
}

template <class T, BinaryOp kOp>
void with_one(const ConstView& left, float right, const View& result) {
  const T* a = left.data_as<T>();
  T* y = result.data_as<T>();
  for_each_element_vector(
      left.shape(),
      [=](const auto& at, auto load, auto store)
          HWY_ATTR { store(value<kOp>(load(a + at[0]), hn::Set(Lanes(), right)), y + at[1]); },
      left, result);
}

template <class T, BinaryOp kOp>
void with_many(const Binary& args) {
  const T* a = args.a.data_as<T>();
  const T* b = args.b.data_as<T>();
  T* y = args.y.data_as<T>();
  const Shape& shape = args.a.shape();
  walk_vectors(
      RowWalk<3>(shape, {args.a.strides(), broadcast_strides(args.b, shape), args.y.strides()}),
      [=](const auto& at, auto load, auto store)
          HWY_ATTR { store(value<kOp>(load(a + at[0]), load(b + at[1])), y + at[2]); },
      outputs_past_caches(args.a, args.b, args.y));
}

void binary_vectors(const Binary& args) {
  dispatch_short_float(args.a.dtype(), [&]<class T>() {
    dispatch_binary(args.op, [&]<BinaryOp kOp>() {
      if (args.b.numel() == 1) {
        with_one<T, kOp>(args.a, static_cast<float>(*args.b.data_as<T>()), args.y);
      } else {
        with_many<T, kOp>(args);
      }
    });
  });
}

void binary_scalar_vectors(const BinaryScalar& args) {
  dispatch_short_float(args.a.dtype(), [&]<class T>() {
    dispatch_binary(args.op, [&]<BinaryOp kOp>() {
      with_one<T, kOp>(args.a, static_cast<float>(args.b), args.y);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(binary_vectors);
HWY_EXPORT(binary_scalar_vectors);

void binary_lanes(const Binary& args) { HWY_DYNAMIC_DISPATCH(binary_vectors)(args); }
void binary_scalar_lanes(const BinaryScalar& args) {
  HWY_DYNAMIC_DISPATCH(binary_scalar_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
