// The f32, bf16 and f16 paths of reduce's forward pass.
#include "kernels/reduce.h"

#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/reduce_matrix.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/column_sums-inl.h"
#include "kernels/cpu/short_float.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// The sum of one block of a row.
template <class T>
float block_sum(const T* row, int64_t cols, int64_t block) {
  const T* first = row + block * kSumBlock;
  return sum_lanes(std::min(kSumBlock, cols - block * kSumBlock),
                   [=](int64_t i, auto load) HWY_ATTR { return load(first + i); });
}

template <class T, class Target>
void sum_rows(const Reduce& args, const ReduceMatrix& m) {
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  const float divisor = args.op == ReduceOp::mean ? static_cast<float>(m.cols) : 1.0f;
  if (m.rows == 1) {
    const float sum =
        parallel_sum_row<float>(m.cols, [&](int64_t block) { return block_sum(x, m.cols, block); });
    store_reduced(y[0], sum / divisor, args.accumulate);
    return;
  }
  parallel_for(m.rows, reduce_row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * m.stride;
      const float sum =
          sum_row<float>(m.cols, [&](int64_t block) { return block_sum(row, m.cols, block); });
      store_reduced(y[r], sum / divisor, args.accumulate);
    }
  });
}

// Additions between the loads keep the hardware from reading ahead far enough: rows are asked for
// this much earlier, into the second-level cache. (Into the first it gained half as much.)
constexpr int64_t kRowsAhead = 8;

template <class T, class Target>
void sum_leading(const Reduce& args, const ReduceMatrix& m) {
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  const float divisor = args.op == ReduceOp::mean ? static_cast<float>(m.rows) : 1.0f;
  parallel_sum_columns(
      m.rows, m.cols,
      [=, stride = m.stride, last = m.rows - 1](int64_t r, int64_t j, auto load) HWY_ATTR {
        __builtin_prefetch(x + std::min(r + kRowsAhead, last) * stride + j, 0, 2);
        return load(x + r * stride + j);
      },
      [&](int64_t j, float sum) { store_reduced(y[j], sum / divisor, args.accumulate); });
}

HWY_INLINE LaneVec larger_lanes(LaneVec a, LaneVec b) {
  return hn::IfThenElse(hn::Or(hn::Ge(a, b), hn::IsNaN(a)), a, b);
}

template <class T>
float row_maximum(const T* row, int64_t cols) {
  float best = static_cast<float>(row[0]);
  const auto lanes = lane_count();
  auto lane_best = hn::Set(Lanes(), best);
  const int64_t whole = cols / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes) {
    lane_best = larger_lanes(lane_best, load_lanes(row + i));
  }
  float lane[HWY_LANES(float)];
  hn::StoreU(lane_best, Lanes(), lane);
  for (const float value : lane) best = larger(best, value);
  for (int64_t i = whole; i < cols; ++i) best = larger(best, static_cast<float>(row[i]));
  return best;
}

template <class T, class Target>
void max_rows(const Reduce& args, const ReduceMatrix& m) {
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  parallel_for(m.rows, reduce_row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      store_reduced(y[r], row_maximum(x + r * m.stride, m.cols), args.accumulate);
    }
  });
}

template <class T, class Target>
void max_leading(const Reduce& args, const ReduceMatrix& m) {
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  parallel_for(m.cols, column_turn(m.cols), [&](int64_t begin, int64_t end) {
    float best[kMaxColumnTurn];
    const int64_t cols = end - begin;
    for_each_vector(cols, [&](int64_t j, auto load, auto store)
                              HWY_ATTR { store(load(x + begin + j), best + j); });
    for (int64_t r = 1; r < m.rows; ++r) {
      const T* row = x + r * m.stride + begin;
      for_each_vector(cols, [&](int64_t j, auto load, auto store) HWY_ATTR {
        const float* so_far = best + j;
        store(larger_lanes(load(so_far), load(row + j)), best + j);
      });
    }
    for (int64_t j = begin; j < end; ++j) store_reduced(y[j], best[j - begin], args.accumulate);
  });
}

template <class T, class Target>
void run(const Reduce& args) {
  const ReduceMatrix m = reduce_matrix(args.x, args.over);
  const bool leading = args.over == ReduceOver::leading;
  if (args.op == ReduceOp::max) {
    leading ? max_leading<T, Target>(args, m) : max_rows<T, Target>(args, m);
  } else {
    leading ? sum_leading<T, Target>(args, m) : sum_rows<T, Target>(args, m);
  }
}

void reduce_vectors(const Reduce& args) {
  dispatch_short_float(args.x.dtype(), [&]<class T>() {
    dispatch_sum_target<T>(args.y.dtype(), [&]<class Target>() { run<T, Target>(args); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(reduce_vectors);

void reduce_lanes(const Reduce& args) { HWY_DYNAMIC_DISPATCH(reduce_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
