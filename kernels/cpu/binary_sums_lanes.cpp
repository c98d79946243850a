// The f32, bf16 and f16 paths of binary's backward pass for a b that is repeated as a row.
#include "kernels/binary.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/binary_sums_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/column_sums-inl.h"
#include "kernels/cpu/lane_number-inl.h"
#include "kernels/cpu/short_float.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

#undef ZINC_ELEMENT
#define ZINC_ELEMENT HWY_INLINE
#include "kernels/elementwise_rows-inl.h"

// The op is a value here, not a template argument: it is the same for all vectors, and memory sets
// the pace.
HWY_INLINE LaneVec term_of(BinaryOp op, LaneVec a, LaneVec b, LaneVec dy) {
  return gradient_of_b(op, LaneNumber(a), LaneNumber(b), LaneNumber(dy)).lanes;
}

template <class Target>
void store_sum(Target& target, float sum, bool accumulate) {
  target = Target(accumulate ? static_cast<float>(target) + sum : sum);
}

// b has one element: the terms are one long row.
template <class T, class Target>
void sum_of_all(const BinaryBackward& args) {
  const BinaryOp op = args.op;
  const T* a = reads_arguments(op) ? args.a.data_as<T>() : args.dy.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  const auto b = constant(reads_arguments(op) ? static_cast<float>(*args.b.data_as<T>()) : 0.0f);
  const int64_t n = args.dy.numel();
  const float sum = parallel_sum_row<float>(n, [&](int64_t block) HWY_ATTR {
    const int64_t first = block * kSumBlock;
    return sum_lanes(std::min(kSumBlock, n - first), [&](int64_t i, auto load) HWY_ATTR {
      return term_of(op, load(a + first + i), b, load(dy + first + i));
    });
  });
  store_sum(*args.db.data_as<Target>(), sum, args.accumulate_db);
}

// b is repeated over leading dimensions: sums of columns.
template <class T, class Target>
void sums_of_columns(const BinaryBackward& args) {
  const BinaryOp op = args.op;
  const int64_t n = args.b.numel();
  if (n == 0) return;
  const T* a = reads_arguments(op) ? args.a.data_as<T>() : args.dy.data_as<T>();
  const T* b = args.b.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  Target* db = args.db.data_as<Target>();
  parallel_sum_columns(
      args.dy.numel() / n, n,
      [=](int64_t r, int64_t j, auto load)
          HWY_ATTR { return term_of(op, load(a + r * n + j), load(b + j), load(dy + r * n + j)); },
      [&](int64_t j, float sum) { store_sum(db[j], sum, args.accumulate_db); });
}

void binary_sums_vectors(const BinaryBackward& args) {
  dispatch_short_float(args.dy.dtype(), [&]<class T>() {
    dispatch_sum_target<T>(args.db.dtype(), [&]<class Target>() {
      args.b.numel() == 1 ? sum_of_all<T, Target>(args) : sums_of_columns<T, Target>(args);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(binary_sums_vectors);

void binary_sums_lanes(const BinaryBackward& args) {
  HWY_DYNAMIC_DISPATCH(binary_sums_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
