#include "kernels/reduce.h"

#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/reduce_matrix.h"
#include "kernels/cpu/row_sum.h"

namespace zinc::kernels::cpu {

void reduce_lanes(const Reduce& args);

namespace {

void sum_rows(const Reduce& args, const ReduceMatrix& m) {
  const double* x = args.x.data_as<double>();
  double* y = args.y.data_as<double>();
  const double divisor = args.op == ReduceOp::mean ? static_cast<double>(m.cols) : 1.0;
  parallel_for(m.rows, reduce_row_grain(m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const double* row = x + r * m.stride;
      const double sum = sum_row<double>(m.cols, [&](int64_t block) {
        const int64_t first = block * kSumBlock;
        return sum_block<double>(first, std::min(kSumBlock, m.cols - first),
                                 [&](int64_t i) { return row[i]; });
      });
      store_reduced(y[r], sum / divisor, args.accumulate);
    }
  });
}

void sum_leading(const Reduce& args, const ReduceMatrix& m) {
  const double* x = args.x.data_as<double>();
  double* y = args.y.data_as<double>();
  const double divisor = args.op == ReduceOp::mean ? static_cast<double>(m.rows) : 1.0;
  parallel_for(m.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    std::array<double, kColumnBlock> sum;
    sum_columns(
        m.rows, begin, end - begin, [&](int64_t r, int64_t j) { return x[r * m.stride + j]; },
        sum.data());
    for (int64_t j = begin; j < end; ++j) {
      store_reduced(y[j], sum[static_cast<size_t>(j - begin)] / divisor, args.accumulate);
    }
  });
}

void max_rows(const Reduce& args, const ReduceMatrix& m) {
  const double* x = args.x.data_as<double>();
  double* y = args.y.data_as<double>();
  for (int64_t r = 0; r < m.rows; ++r) {
    double best = x[r * m.stride];
    for (int64_t i = 1; i < m.cols; ++i) best = larger(best, x[r * m.stride + i]);
    store_reduced(y[r], best, args.accumulate);
  }
}

void max_leading(const Reduce& args, const ReduceMatrix& m) {
  const double* x = args.x.data_as<double>();
  double* y = args.y.data_as<double>();
  for (int64_t j = 0; j < m.cols; ++j) {
    double best = x[j];
    for (int64_t r = 1; r < m.rows; ++r) best = larger(best, x[r * m.stride + j]);
    store_reduced(y[j], best, args.accumulate);
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
  parallel_for(rows, reduce_row_grain(cols), [&](int64_t begin, int64_t end) {
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
  const ReduceMatrix m = reduce_matrix(args.x, args.over);
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
  parallel_for(m.rows, reduce_row_grain(m.cols), [&](int64_t begin, int64_t end) {
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
  if (args.x.dtype() != DType::f64) return reduce_lanes(args);
  const ReduceMatrix m = reduce_matrix(args.x, args.over);
  const bool leading = args.over == ReduceOver::leading;
  if (args.op == ReduceOp::max) {
    leading ? max_leading(args, m) : max_rows(args, m);
  } else {
    leading ? sum_leading(args, m) : sum_rows(args, m);
  }
}

// One value is written for each that is read at most: plain loops reach the memory's speed.
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
