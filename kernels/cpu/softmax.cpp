// Softmax of rows and its gradient. Parallel over rows; a row is read from memory once and stays in
// the cache for its second pass: one read and one write of the array.
#include "kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "kernels/cpu/highway_targets.h"
#include "kernels/cpu/past_caches.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/softmax_rows-inl.h"

#ifndef ZINC_KERNELS_CPU_SOFTMAX_ONCE
#define ZINC_KERNELS_CPU_SOFTMAX_ONCE
namespace zinc::kernels::cpu {

// Columns of a row whose exponentials are kept in f32 between their sum and the division, and of an
// f32 row from which on rows are computed in turns.
inline constexpr int64_t kKeptColumns = 65536;
inline constexpr int64_t kKeptColumnsF32 = 4096;

}  // namespace zinc::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// Exponentials are kept and scaled once their sum is known. Memory works on `next`, as long as x,
// meanwhile.
template <class T>
HWY_INLINE void forward_keeping(const T* x, const T* next, T* y, float* kept, int64_t n,
                                bool past) {
  RowSum row;
  row.max = max_of(x, n);
  const float sum =
      exp_sum(x, n, 1.0f, row.shift(), [&](int64_t c, LaneVec e, auto store) HWY_ATTR {
        hwy::Prefetch(next + c);
        store(e, kept + c);
      });
  const auto factor = hn::Set(Lanes(), 1.0f / sum);
  for_each_vector(
      n,
      [&](int64_t c, auto load, auto store)
          HWY_ATTR { store(hn::Mul(load(kept + c), factor), y + c); },
      past, head_of(y));
}

// The factors that the kept exponentials of a row still lack: one for each block of kSoftmaxBlock,
// since a block was summed against the maximum of the blocks so far.
class BlockFactors {
 public:
  // Block `block` begins with this as the largest element so far.
  void begin(int64_t block, const RowSum& row) { largest_[block] = row.max; }
  void finish(int64_t n, const RowSum& row) {
    for (int64_t k = 0; k * kSoftmaxBlock < n; ++k) {
      factors_[k] = std::exp(largest_[k] - row.shift()) / row.sum;
    }
  }
  float of(int64_t column) const { return factors_[column / kSoftmaxBlock]; }
  // The factors of a vector of which `left` elements, fewer than all, still lie in `block`.
  HWY_INLINE LaneVec across(int64_t block, int64_t left) const {
    const Lanes d;
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(left)), hn::Set(d, factors_[block]),
                          hn::Set(d, factors_[block + 1]));
  }

 private:
  float largest_[kKeptColumns / kSoftmaxBlock] = {};
  float factors_[kKeptColumns / kSoftmaxBlock + 1] = {};
};

// Note [Long rows in turns]
// A long row's exponentials and their scaling each take about as long as memory takes for the row.
// So the exponentials of a row are computed a block at a time, while those of the row before are
// scaled and stored; the new ones take their place in `kept`. Memory reads and writes all the time,
// and `kept` is all that the second-level cache has to hold.
inline void forward_in_turns(const float* x, float* y, int64_t rows, int64_t n, bool past) {
  // Elements that lie that far ahead are asked for.
  constexpr int64_t kAhead = 4096;
  float kept[kKeptColumns];
  BlockFactors factors;
  const int64_t lanes = lane_count();
  const float* last = x + rows * n - 1;
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    float* y_before = r > 0 ? y - n : y;
    const int64_t head = r > 0 && past ? head_of(y_before) : 0;
    if (r > 0) {
      const int64_t done = head + (n - head) / lanes * lanes;
      for (int64_t c = 0; c < head; ++c) y_before[c] = kept[c] * factors.of(c);
      for (int64_t c = done; c < n; ++c) y_before[c] = kept[c] * factors.of(c);
    }
    RowSum row;
    for (int64_t begin = 0, block = 0; begin < n; begin += kSoftmaxBlock, ++block) {
      const int64_t count = std::min(kSoftmaxBlock, n - begin);
      const float* from = kept + begin + head;
      float* to = y_before + begin + head;
      const int64_t end = r > 0 ? n - lanes - begin - head : -1;
      const auto factor = hn::Set(Lanes(), factors.of(begin));
      const int64_t last_ahead = std::min(kAhead + count, last - x - begin);
      const auto emit = [&](int64_t i, LaneVec e, auto store) HWY_ATTR {
        if (i <= end) {
          const int64_t left = kSoftmaxBlock - head - i;
          const auto of_these = left >= lanes ? factor : factors.across(block, left);
          const auto scaled = hn::Mul(load_lanes(from + i), of_these);
          if (past) {
            stream_lanes(scaled, to + i);
          } else {
            store_lanes(scaled, to + i);
          }
        }
        store(e, kept + begin + i);
        hwy::Prefetch(x + begin + std::min(i + kAhead, last_ahead));
      };
      add_block(
          x + begin, count, row, [&] { factors.begin(block, row); }, emit);
    }
    factors.finish(n, row);
  }
  for (int64_t begin = 0; rows > 0 && begin < n; begin += kSoftmaxBlock) {
    const auto factor = hn::Set(Lanes(), factors.of(begin));
    const float* from = kept + begin;
    float* to = y - n + begin;
    for_each_vector(std::min(kSoftmaxBlock, n - begin),
                    [&](int64_t c, auto load, auto store)
                        HWY_ATTR { store(hn::Mul(load(from + c), factor), to + c); });
  }
}

// Exponentials are computed twice.
template <class T>
void forward_again(const T* x, T* y, int64_t n, bool past) {
  const RowSum row = row_sum(x, n);
  const auto shift = hn::Set(Lanes(), row.shift());
  const auto factor = hn::Set(Lanes(), 1.0f / row.sum);
  for_each_vector(
      n,
      [&](int64_t c, auto load, auto store) HWY_ATTR {
        store(hn::Mul(exp_bounded_lanes(hn::Sub(load(x + c), shift)), factor), y + c);
      },
      past, head_of(y));
}

// Fetching the next row here would only compete with the second pass for the second-level cache.
template <class T>
void backward_row(const T* dy, const T* y, T* dx, int64_t n, bool past) {
  const Lanes d;
  auto sum = hn::Zero(d);
  for_each_vector(n, [&](int64_t c, auto load, auto)
                         HWY_ATTR { sum = hn::MulAdd(load(dy + c), load(y + c), sum); });
  const auto dot = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)));
  for_each_vector(
      n,
      [&](int64_t c, auto load, auto store)
          HWY_ATTR { store(hn::Mul(load(y + c), hn::Sub(load(dy + c), dot)), dx + c); },
      past, head_of(dx));
}

template <class T>
void forward_rows(const T* x, T* y, int64_t rows, int64_t n, bool past) {
  if constexpr (std::is_same_v<T, float>) {
    if (n > kKeptColumnsF32 && n <= kKeptColumns) return forward_in_turns(x, y, rows, n, past);
  }
  float kept[kKeptColumns];
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const T* next = r + 1 < rows ? x + n : x;
    if (n <= (std::is_same_v<T, float> ? kKeptColumnsF32 : kKeptColumns)) {
      forward_keeping(x, next, y, kept, n, past);
    } else {
      forward_again(x, y, n, past);
    }
  }
}
template <class T>
void backward_rows(const T* dy, const T* y, T* dx, int64_t rows, int64_t n, bool past) {
  for (int64_t r = 0; r < rows; ++r) {
    backward_row(dy + r * n, y + r * n, dx + r * n, n, past);
  }
}

void forward_f32(const float* x, float* y, int64_t rows, int64_t n, bool past) {
  forward_rows(x, y, rows, n, past);
}
void forward_bf16(const bf16* x, bf16* y, int64_t rows, int64_t n, bool past) {
  forward_rows(x, y, rows, n, past);
}
void forward_f16(const f16* x, f16* y, int64_t rows, int64_t n, bool past) {
  forward_rows(x, y, rows, n, past);
}
void backward_f32(const float* dy, const float* y, float* dx, int64_t rows, int64_t n, bool past) {
  backward_rows(dy, y, dx, rows, n, past);
}
void backward_bf16(const bf16* dy, const bf16* y, bf16* dx, int64_t rows, int64_t n, bool past) {
  backward_rows(dy, y, dx, rows, n, past);
}
void backward_f16(const f16* dy, const f16* y, f16* dx, int64_t rows, int64_t n, bool past) {
  backward_rows(dy, y, dx, rows, n, past);
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {
namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_bf16);
HWY_EXPORT(forward_f16);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_bf16);
HWY_EXPORT(backward_f16);

// Chunks of rows of about this many elements are a thread's turn. Where long rows go past the
// caches in turns, a chunk has rows enough that the first read and the last write do not count, as
// long as every thread has one.
constexpr int64_t kGrain = 1 << 15;
constexpr int64_t kLongRowsPast = 32;

int64_t rows_of_a_turn(int64_t rows, int64_t n, bool in_turns, bool past) {
  const int64_t usual = past_caches_grain(kGrain, past) / n;
  if (!past || !in_turns || n <= kKeptColumnsF32 || n > kKeptColumns) return usual;
  return std::max(usual, std::min(kLongRowsPast, rows / num_parallel_threads()));
}

void forward(const double* x, double* y, int64_t rows, int64_t n, bool /*past*/) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const double max = *std::max_element(x, x + n);
    double sum = 0.0;
    for (int64_t c = 0; c < n; ++c) sum += std::exp(x[c] - max);
    for (int64_t c = 0; c < n; ++c) y[c] = std::exp(x[c] - max) / sum;
  }
}
void forward(const float* x, float* y, int64_t rows, int64_t n, bool past) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(x, y, rows, n, past);
}
void forward(const bf16* x, bf16* y, int64_t rows, int64_t n, bool past) {
  HWY_DYNAMIC_DISPATCH(forward_bf16)(x, y, rows, n, past);
}
void forward(const f16* x, f16* y, int64_t rows, int64_t n, bool past) {
  HWY_DYNAMIC_DISPATCH(forward_f16)(x, y, rows, n, past);
}

void backward(const double* dy, const double* y, double* dx, int64_t rows, int64_t n,
              bool /*past*/) {
  for (int64_t r = 0; r < rows; ++r, dy += n, y += n, dx += n) {
    double dot = 0.0;
    for (int64_t c = 0; c < n; ++c) dot += dy[c] * y[c];
    for (int64_t c = 0; c < n; ++c) dx[c] = y[c] * (dy[c] - dot);
  }
}
void backward(const float* dy, const float* y, float* dx, int64_t rows, int64_t n, bool past) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(dy, y, dx, rows, n, past);
}
void backward(const bf16* dy, const bf16* y, bf16* dx, int64_t rows, int64_t n, bool past) {
  HWY_DYNAMIC_DISPATCH(backward_bf16)(dy, y, dx, rows, n, past);
}
void backward(const f16* dy, const f16* y, f16* dx, int64_t rows, int64_t n, bool past) {
  HWY_DYNAMIC_DISPATCH(backward_f16)(dy, y, dx, rows, n, past);
}

}  // namespace

void softmax_forward(const SoftmaxForward& args) {
  const int64_t n = args.x.cols();
  dispatch_float(args.x.dtype(), [&]<class T>() {
    const T* x = args.x.data_as<T>();
    T* y = args.y.data_as<T>();
    const bool past = past_caches(args.y, args.x);
    parallel_for(args.x.rows(), rows_of_a_turn(args.x.rows(), n, std::is_same_v<T, float>, past),
                 [&](int64_t begin, int64_t end) {
                   forward(x + begin * n, y + begin * n, end - begin, n, past);
                   if (past) flush_past_caches();
                 });
  });
}

void softmax_backward(const SoftmaxBackward& args) {
  const int64_t n = args.dy.cols();
  dispatch_float(args.dy.dtype(), [&]<class T>() {
    const T* dy = args.dy.data_as<T>();
    const T* y = args.y.data_as<T>();
    T* dx = args.dx.data_as<T>();
    const bool past = past_caches(args.dx, args.dy, args.y);
    parallel_for(args.dy.rows(), past_caches_grain(kGrain, past) / n,
                 [&](int64_t begin, int64_t end) {
                   backward(dy + begin * n, y + begin * n, dx + begin * n, end - begin, n, past);
                   if (past) flush_past_caches();
                 });
  });
}

}  // namespace zinc::kernels::cpu
#endif  // HWY_ONCE
