// The f32, bf16 and f16 paths of binary's backward pass.
#include "kernels/binary.h"

#include "kernels/cpu/binary_broadcast.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/binary_backward_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/column_sums-inl.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// The op is a value here, not a template argument: it is the same for all vectors, and memory sets
// the pace.
HWY_INLINE LaneVec gradient_of_a(BinaryOp op, LaneVec a, LaneVec b, LaneVec dy) {
  switch (op) {
    case BinaryOp::mul:
      return hn::Mul(dy, b);
    case BinaryOp::div:
      return hn::Div(dy, b);
    case BinaryOp::max:
      return hn::IfThenZeroElse(hn::Gt(b, a), dy);
    case BinaryOp::min:
      return hn::IfThenZeroElse(hn::Lt(b, a), dy);
    default:
      return dy;
  }
}

HWY_INLINE LaneVec gradient_of_b(BinaryOp op, LaneVec a, LaneVec b, LaneVec dy) {
  switch (op) {
    case BinaryOp::sub:
      return hn::Neg(dy);
    case BinaryOp::mul:
      return hn::Mul(dy, a);
    case BinaryOp::div:
      return hn::Neg(hn::Div(hn::Mul(dy, hn::Div(a, b)), b));
    case BinaryOp::max:
      return hn::IfThenElseZero(hn::Gt(b, a), dy);
    case BinaryOp::min:
      return hn::IfThenElseZero(hn::Lt(b, a), dy);
    default:
      return dy;
  }
}

// a, or dy in its place where it may be absent and is not used.
template <class T>
const T* left_or_dy(const BinaryBackward& args) {
  return is_linear(args.op) ? args.dy.data_as<T>() : args.a.data_as<T>();
}

template <class T>
void backward_a(const BinaryBackward& args) {
  const BinaryOp op = args.op;
  const T* a = left_or_dy<T>(args);
  const T* b = args.b.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  T* da = args.da.data_as<T>();
  const Shape& shape = args.dy.shape();
  const Strides left = is_linear(op) ? args.dy.strides() : args.a.strides();
  if (is_linear(op) || args.b.numel() == 1) {
    const float right = is_linear(op) ? 0.0f : static_cast<float>(*b);
    walk_vectors(
        RowWalk<3>(shape, {left, args.dy.strides(), args.da.strides()}),
        [=](const auto& at, auto load, auto store) HWY_ATTR {
          store(gradient_of_a(op, load(a + at[0]), hn::Set(Lanes(), right), load(dy + at[1])),
                da + at[2]);
        });
    return;
  }
  walk_vectors(
      RowWalk<4>(shape,
                 {left, broadcast_strides(args.b, shape), args.dy.strides(), args.da.strides()}),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        store(gradient_of_a(op, load(a + at[0]), load(b + at[1]), load(dy + at[2])), da + at[3]);
      });
}

template <class T, class Target>
void backward_same_shape(const BinaryBackward& args) {
  const BinaryOp op = args.op;
  const bool accumulate = args.accumulate_db;
  const T* a = left_or_dy<T>(args);
  const T* b = args.b.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  Target* db = args.db.data_as<Target>();
  const Strides left = is_linear(op) ? args.dy.strides() : args.a.strides();
  walk_vectors(
      RowWalk<4>(args.dy.shape(), {left, args.b.strides(), args.dy.strides(), args.db.strides()}),
      [=](const auto& at, auto load, auto store) HWY_ATTR {
        auto sum = gradient_of_b(op, load(a + at[0]), load(b + at[1]), load(dy + at[2]));
        const Target* before = db + at[3];
        if (accumulate) sum = hn::Add(load(before), sum);
        store(sum, db + at[3]);
      });
}

// b has one element: the terms are one long row.
template <class T, class Target>
void backward_one(const BinaryBackward& args) {
  const BinaryOp op = args.op;
  const T* a = left_or_dy<T>(args);
  const T* dy = args.dy.data_as<T>();
  const auto b = hn::Set(Lanes(), is_linear(op) ? 0.0f : static_cast<float>(*args.b.data_as<T>()));
  const int64_t n = args.dy.numel();
  const float sum = parallel_sum_row<float>(n, [&](int64_t block) HWY_ATTR {
    const int64_t first = block * kSumBlock;
    return sum_lanes(std::min(kSumBlock, n - first), [&](int64_t i, auto load) HWY_ATTR {
      return gradient_of_b(op, load(a + first + i), b, load(dy + first + i));
    });
  });
  store_sum(*args.db.data_as<Target>(), sum, args.accumulate_db);
}

// b is repeated over leading dimensions: sums of columns.
template <class T, class Target>
void backward_repeated(const BinaryBackward& args) {
  const BinaryOp op = args.op;
  const int64_t n = args.b.numel();
  const T* a = left_or_dy<T>(args);
  const T* b = args.b.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  Target* db = args.db.data_as<Target>();
  parallel_sum_columns(
      args.dy.numel() / n, n,
      [=](int64_t r, int64_t j, auto load) HWY_ATTR {
        return gradient_of_b(op, load(a + r * n + j), load(b + j), load(dy + r * n + j));
      },
      [&](int64_t j, float sum) { store_sum(db[j], sum, args.accumulate_db); });
}

void binary_backward_vectors(const BinaryBackward& args) {
  dispatch_short_float(args.dy.dtype(), [&]<class T>() {
    if (args.db) {
      dispatch_sum_target<T>(args.db.dtype(), [&]<class Target>() {
        if (args.b.shape() == args.dy.shape()) {
          backward_same_shape<T, Target>(args);
        } else if (args.b.numel() == 1) {
          backward_one<T, Target>(args);
        } else if (args.b.numel() > 0) {
          backward_repeated<T, Target>(args);
        }
      });
    }
    if (args.da) backward_a<T>(args);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(binary_backward_vectors);

void binary_backward_lanes(const BinaryBackward& args) {
  HWY_DYNAMIC_DISPATCH(binary_backward_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
