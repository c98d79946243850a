#include "kernels/binary.h"

#include <algorithm>

#include "kernels/binary_functions.h"
#include "kernels/cpu/binary_broadcast.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/op_dispatch.h"
#include "kernels/cpu/row_sum.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void binary_lanes(const Binary& args);
void binary_scalar_lanes(const BinaryScalar& args);
void binary_backward_lanes(const BinaryBackward& args);

namespace {

template <BinaryOp kOp>
void forward(const Binary& args) {
  const double* a = args.a.data_as<double>();
  const double* b = args.b.data_as<double>();
  double* y = args.y.data_as<double>();
  const Shape& shape = args.a.shape();
  if (args.b.numel() == 1) {
    const double right = *b;
    parallel_elements(
        shape,
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) y[at[1] + i] = value_of(kOp, a[at[0] + i], right);
        },
        args.a, args.y);
    return;
  }
  const RowWalk<3> walk(shape,
                        {args.a.strides(), broadcast_strides(args.b, shape), args.y.strides()});
  parallel_for(shape.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    walk.run(begin, end, [&](const auto& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        y[at[2] + i] = value_of(kOp, a[at[0] + i], b[at[1] + i]);
      }
    });
  });
}

// The gradient of a broadcast b: sums of `term(r, j)` over the R repetitions of its n elements.
template <class Term>
void sum_repetitions(double* db, int64_t repetitions, int64_t n, bool accumulate, Term&& term) {
  if (n == 1) {
    store_sum(*db,
              parallel_sum_row<double>(repetitions,
                                       [&](int64_t block) {
                                         const int64_t begin = block * kSumBlock;
                                         return sum_block<double>(
                                             begin, std::min(kSumBlock, repetitions - begin),
                                             [&](int64_t r) { return term(r, int64_t{0}); });
                                       }),
              accumulate);
    return;
  }
  parallel_for(n, kColumnBlock, [&](int64_t begin, int64_t end) {
    std::array<double, kColumnBlock> sum;
    sum_columns(repetitions, begin, end - begin, term, sum.data());
    for (int64_t j = begin; j < end; ++j) {
      store_sum(db[j], sum[static_cast<size_t>(j - begin)], accumulate);
    }
  });
}

template <BinaryOp kOp>
void backward_b(const BinaryBackward& args) {
  constexpr bool kLinear = is_linear(kOp);
  const double* a = kLinear ? nullptr : args.a.data_as<double>();
  const double* b = kLinear ? nullptr : args.b.data_as<double>();
  const double* dy = args.dy.data_as<double>();
  double* db = args.db.data_as<double>();
  const auto term = [=](int64_t ia, int64_t ib, int64_t idy) {
    if constexpr (kLinear) return gradient_of_b(kOp, 0.0, 0.0, dy[idy]);
    return gradient_of_b(kOp, a[ia], b[ib], dy[idy]);
  };
  const Shape& shape = args.dy.shape();
  if (args.b.shape() == shape) {
    const ConstView& left = kLinear ? args.dy : args.a;
    parallel_elements(
        shape,
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) {
            store_sum(db[at[3] + i], term(at[0] + i, at[1] + i, at[2] + i), args.accumulate_db);
          }
        },
        left, args.b, args.dy, args.db);
    return;
  }
  const int64_t n = args.b.numel();
  if (n == 0) return;
  sum_repetitions(db, shape.numel() / n, n, args.accumulate_db,
                  [&](int64_t r, int64_t j) { return term(r * n + j, j, r * n + j); });
}

template <BinaryOp kOp>
void backward_a(const BinaryBackward& args) {
  constexpr bool kLinear = is_linear(kOp);
  const double* a = kLinear ? nullptr : args.a.data_as<double>();
  const double* b = kLinear ? nullptr : args.b.data_as<double>();
  const double* dy = args.dy.data_as<double>();
  double* da = args.da.data_as<double>();
  const Shape& shape = args.dy.shape();
  const bool one = args.b.numel() == 1;
  const Strides left = kLinear ? args.dy.strides() : args.a.strides();
  const Strides right = one ? left : broadcast_strides(args.b, shape);
  const RowWalk<4> walk(shape, {left, right, args.dy.strides(), args.da.strides()});
  parallel_for(shape.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    walk.run(begin, end, [&](const auto& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const double d = dy[at[2] + i];
        if constexpr (kLinear) {
          da[at[3] + i] = gradient_of_a(kOp, 0.0, 0.0, d);
        } else {
          const double right_value = b[one ? 0 : at[1] + i];
          da[at[3] + i] = gradient_of_a(kOp, a[at[0] + i], right_value, d);
        }
      }
    });
  });
}

}  // namespace

void binary(const Binary& args) {
  if (args.a.dtype() != DType::f64) return binary_lanes(args);
  dispatch_binary(args.op, [&]<BinaryOp kOp>() { forward<kOp>(args); });
}

void binary_scalar(const BinaryScalar& args) {
  if (args.a.dtype() != DType::f64) return binary_scalar_lanes(args);
  const double* a = args.a.data_as<double>();
  double* y = args.y.data_as<double>();
  dispatch_binary(args.op, [&]<BinaryOp kOp>() {
    parallel_elements(
        args.a.shape(),
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) y[at[1] + i] = value_of(kOp, a[at[0] + i], args.b);
        },
        args.a, args.y);
  });
}

void binary_backward(const BinaryBackward& args) {
  if (args.dy.dtype() != DType::f64) return binary_backward_lanes(args);
  dispatch_binary(args.op, [&]<BinaryOp kOp>() {
    if (args.db) backward_b<kOp>(args);
    if (args.da) backward_a<kOp>(args);
  });
}

}  // namespace zinc::kernels::cpu
