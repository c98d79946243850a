// Sums of rows that share an id, and sums of two rows, for embedding and scatter_add_rows.
#include "kernels/cpu/row_adding.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_adding_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// y[j] (+)= the named rows of x, for the columns [0, n) with n <= kAddColumns.
template <class T, class Target>
void add_entries(std::span<const RowPlace> entries, const T* x, int64_t x_stride, Target* y,
                 int64_t n, bool accumulate) {
  HWY_ALIGN float sum[kAddColumns];
  const auto add = [n](const auto* from, float* to) HWY_ATTR {
    for_each_vector(n, [&](int64_t j, auto load, auto store) HWY_ATTR {
      const float* so_far = to + j;
      store(hn::Add(load(so_far), load(from + j)), to + j);
    });
  };
  sum_rows(
      entries, n, sum,
      [&](const RowPlace& entry, float* to)
          HWY_ATTR { add(x + int64_t{entry.place} * x_stride, to); },
      [&](float* from, float* to) HWY_ATTR { add(from, to); });
  for_each_vector(n, [&](int64_t j, auto load, auto store) HWY_ATTR {
    const float* total = sum + j;
    const Target* before = y + j;
    store(accumulate ? hn::Add(load(before), load(total)) : load(total), y + j);
  });
}

void add_rows_vectors(const RowAdding& plan, const ConstView& x, const View& y) {
  dispatch_short_float(x.dtype(), [&]<class T>() {
    dispatch_sum_target<T>(y.dtype(), [&]<class Target>() {
      for_each_row_turn(plan, [&](const RowTurn& turn) {
        add_entries(turn.entries, x.data_as<T>() + turn.col, plan.x_stride,
                    y.data_as<Target>() + turn.row * plan.y_stride + turn.col, turn.cols,
                    plan.accumulate);
      });
    });
  });
}

void add_two_rows_vectors(const ConstView& left, int64_t left_row, const ConstView& right,
                          int64_t right_row, const View& y, int64_t row) {
  const int64_t cols = left.cols();
  dispatch_short_float(y.dtype(), [&]<class T>() HWY_ATTR {
    const T* a = left.data_as<T>() + left_row * cols;
    const T* b = right.data_as<T>() + right_row * cols;
    T* out = y.data_as<T>() + row * cols;
    for_each_vector(cols, [=](int64_t j, auto load, auto store)
                              HWY_ATTR { store(hn::Add(load(a + j), load(b + j)), out + j); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(add_rows_vectors);
HWY_EXPORT(add_two_rows_vectors);

void add_rows_lanes(const RowAdding& plan, const ConstView& x, const View& y) {
  HWY_DYNAMIC_DISPATCH(add_rows_vectors)(plan, x, y);
}
void add_two_rows_lanes(const ConstView& left, int64_t left_row, const ConstView& right,
                        int64_t right_row, const View& y, int64_t row) {
  HWY_DYNAMIC_DISPATCH(add_two_rows_vectors)(left, left_row, right, right_row, y, row);
}

}  // namespace zinc::kernels::cpu
#endif
