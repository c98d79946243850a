#include "kernels/reduce.h"

#include "kernels/checks.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/row_sum.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

// x as the sums see it: `all` is one row.
struct Matrix {
  int64_t rows;
  int64_t cols;
  int64_t stride;
};

Matrix matrix_of(const ConstView& x, ReduceOver over) {
  if (over == ReduceOver::all) return {1, x.numel(), x.numel()};
  return {x.rows(), x.cols(), row_stride("reduce", "x", x)};
}

// Rows of a thread's turn.
int64_t row_grain(int64_t cols) { return std::max<int64_t>(1, kElementGrain / (cols + 1)); }

template <class A>
A larger(A a, A b) {
  return a >= b || a != a ? a : b;
}

template <class A, class Target>
void store(Target& target, A value, bool accumulate) {
  target = Target(accumulate ? A(target) + value : value);
}

template <class T, class Target>
void sum_rows(const Reduce& args, const Matrix& m) {
  using A = AccumulatorOf<T>;
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  const A divisor = args.op == ReduceOp::mean ? static_cast<A>(m.cols) : A(1);
  const auto block_sum_of = [&](int64_t r) {
    return [row = x + r * m.stride, cols = m.cols](int64_t block) {
      const int64_t begin = block * kSumBlock;
      return sum_block<A>(begin, std::min(kSumBlock, cols - begin),
                          [&](int64_t i) { return A(row[i]); });
    };
  };
  if (m.rows == 1) {
    store(y[0], parallel_sum_row<A>(m.cols, block_sum_of(0)) / divisor, args.accumulate);
    return;
  }
  parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      store(y[r], sum_row<A>(m.cols, block_sum_of(r)) / divisor, args.accumulate);
    }
  });
}

template <class T, class Target>
void sum_leading(const Reduce& args, const Matrix& m) {
  using A = AccumulatorOf<T>;
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  const A divisor = args.op == ReduceOp::mean ? static_cast<A>(m.rows) : A(1);
  parallel_for(m.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    std::array<A, kColumnBlock> sum;
    sum_columns(
        m.rows, begin, end - begin, [&](int64_t r, int64_t j) { return A(x[r * m.stride + j]); },
        sum.data());
    for (int64_t j = begin; j < end; ++j) {
      store(y[j], sum[static_cast<size_t>(j - begin)] / divisor, args.accumulate);
    }
  });
}

template <class T, class Target>
void max_rows(const Reduce& args, const Matrix& m) {
  using A = AccumulatorOf<T>;
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      A best = A(x[r * m.stride]);
      for (int64_t i = 1; i < m.cols; ++i) best = larger(best, A(x[r * m.stride + i]));
      store(y[r], best, args.accumulate);
    }
  });
}

template <class T, class Target>
void max_leading(const Reduce& args, const Matrix& m) {
  using A = AccumulatorOf<T>;
  const T* x = args.x.data_as<T>();
  Target* y = args.y.data_as<Target>();
  parallel_for(m.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    std::array<A, kColumnBlock> best;
    for (int64_t j = begin; j < end; ++j) best[static_cast<size_t>(j - begin)] = A(x[j]);
    for (int64_t r = 1; r < m.rows; ++r) {
      for (int64_t j = begin; j < end; ++j) {
        A& mine = best[static_cast<size_t>(j - begin)];
        mine = larger(mine, A(x[r * m.stride + j]));
      }
    }
    for (int64_t j = begin; j < end; ++j) {
      store(y[j], best[static_cast<size_t>(j - begin)], args.accumulate);
    }
  });
}

template <class T, class Target>
void run(const Reduce& args) {
  const Matrix m = matrix_of(args.x, args.over);
  const bool leading = args.over == ReduceOver::leading;
  if (args.op == ReduceOp::max) {
    leading ? max_leading<T, Target>(args, m) : max_rows<T, Target>(args, m);
  } else {
    leading ? sum_leading<T, Target>(args, m) : sum_rows<T, Target>(args, m);
  }
}

// dx of a sum or mean: every element takes its row's or its column's gradient.
template <class T, class Gradient>
void spread(const ReduceBackward& args) {
  using A = AccumulatorOf<T>;
  const Gradient* dy = args.dy.data_as<Gradient>();
  T* dx = args.dx.data_as<T>();
  const int64_t rows = args.dx.rows();
  const int64_t cols = args.dx.cols();
  const int64_t stride = row_stride("reduce_backward", "dx", args.dx);
  const int64_t count = args.over == ReduceOver::last      ? cols
                        : args.over == ReduceOver::leading ? rows
                                                           : rows * cols;
  const A divisor = args.op == ReduceOp::mean ? static_cast<A>(count) : A(1);
  parallel_for(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* row = dx + r * stride;
      if (args.over == ReduceOver::leading) {
        for (int64_t j = 0; j < cols; ++j) row[j] = T(A(dy[j]) / divisor);
      } else {
        const T value = T(A(dy[args.over == ReduceOver::last ? r : 0]) / divisor);
        std::fill_n(row, cols, value);
      }
    }
  });
}

// True where `candidate` takes the place of `best` as the first maximum; NaN beats all.
template <class A>
bool beats(A candidate, A best) {
  return candidate > best || (candidate != candidate && best == best);
}

template <class T, class Gradient>
void route_to_maximum(const ReduceBackward& args) {
  using A = AccumulatorOf<T>;
  const Gradient* dy = args.dy.data_as<Gradient>();
  const T* x = args.x.data_as<T>();
  T* dx = args.dx.data_as<T>();
  const Matrix m = matrix_of(args.x, args.over);
  const int64_t dx_stride =
      args.over == ReduceOver::all ? m.cols : row_stride("reduce_backward", "dx", args.dx);
  if (args.over == ReduceOver::leading) {
    parallel_for(m.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        int64_t best = 0;
        for (int64_t r = 0; r < m.rows; ++r) {
          if (beats(A(x[r * m.stride + j]), A(x[best * m.stride + j]))) best = r;
          dx[r * dx_stride + j] = T(A(0));
        }
        dx[best * dx_stride + j] = T(A(dy[j]));
      }
    });
    return;
  }
  parallel_for(m.rows, row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * m.stride;
      int64_t best = 0;
      for (int64_t i = 1; i < m.cols; ++i) {
        if (beats(A(row[i]), A(row[best]))) best = i;
      }
      std::fill_n(dx + r * dx_stride, m.cols, T(A(0)));
      dx[r * dx_stride + best] = T(A(dy[r]));
    }
  });
}

template <class T, class Gradient>
void run_backward(const ReduceBackward& args) {
  args.op == ReduceOp::max ? route_to_maximum<T, Gradient>(args) : spread<T, Gradient>(args);
}

}  // namespace

void reduce(const Reduce& args) {
  dispatch_float(args.x.dtype(), [&]<class T>() {
    if (args.y.dtype() == args.x.dtype()) {
      run<T, T>(args);
    } else if constexpr (sizeof(T) == 2) {
      run<T, float>(args);
    }
  });
}

void reduce_backward(const ReduceBackward& args) {
  dispatch_float(args.dx.dtype(), [&]<class T>() {
    if (args.dy.dtype() == args.dx.dtype()) {
      run_backward<T, T>(args);
    } else if constexpr (sizeof(T) == 2) {
      run_backward<T, float>(args);
    }
  });
}

}  // namespace zinc::kernels::cpu
