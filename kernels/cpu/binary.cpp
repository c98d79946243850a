#include "kernels/binary.h"

#include <algorithm>

#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/row_sum.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

template <BinaryOp kOp, class A>
A value(A a, A b) {
  switch (kOp) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::sub:
      return a - b;
    case BinaryOp::mul:
      return a * b;
    case BinaryOp::div:
      return a / b;
    case BinaryOp::max:
      return a >= b || a != a ? a : b;
    case BinaryOp::min:
      return a <= b || a != a ? a : b;
  }
}

// The gradient of a at one element.
template <BinaryOp kOp, class A>
A gradient_a(A a, A b, A dy) {
  switch (kOp) {
    case BinaryOp::add:
    case BinaryOp::sub:
      return dy;
    case BinaryOp::mul:
      return dy * b;
    case BinaryOp::div:
      return dy / b;
    case BinaryOp::max:
      return b > a ? A(0) : dy;
    case BinaryOp::min:
      return b < a ? A(0) : dy;
  }
}

// The contribution of one element to the gradient of b.
template <BinaryOp kOp, class A>
A gradient_b(A a, A b, A dy) {
  switch (kOp) {
    case BinaryOp::add:
      return dy;
    case BinaryOp::sub:
      return -dy;
    case BinaryOp::mul:
      return dy * a;
    case BinaryOp::div:
      return -(dy * (a / b)) / b;
    case BinaryOp::max:
      return b > a ? dy : A(0);
    case BinaryOp::min:
      return b < a ? dy : A(0);
  }
}

template <class Body>
void dispatch_binary(BinaryOp op, Body&& body) {
  switch (op) {
    case BinaryOp::add:
      return body.template operator()<BinaryOp::add>();
    case BinaryOp::sub:
      return body.template operator()<BinaryOp::sub>();
    case BinaryOp::mul:
      return body.template operator()<BinaryOp::mul>();
    case BinaryOp::div:
      return body.template operator()<BinaryOp::div>();
    case BinaryOp::max:
      return body.template operator()<BinaryOp::max>();
    case BinaryOp::min:
      return body.template operator()<BinaryOp::min>();
  }
}

// Strides that repeat `view` over the leading dimensions of `shape`.
Strides broadcast_strides(const ConstView& view, const Shape& shape) {
  if (view.shape() == shape) return view.strides();
  Strides strides{};
  const int lead = shape.rank() - view.rank();
  for (int i = 0; i < view.rank(); ++i) strides[static_cast<size_t>(lead + i)] = view.stride(i);
  return strides;
}

template <class T, BinaryOp kOp>
void forward(const Binary& args) {
  using A = AccumulatorOf<T>;
  const T* a = args.a.data_as<T>();
  const T* b = args.b.data_as<T>();
  T* y = args.y.data_as<T>();
  const Shape& shape = args.a.shape();
  if (args.b.numel() == 1) {
    const A right = A(*b);
    parallel_elements(
        shape,
        [&](const auto& at, int64_t n) {
          for (int64_t i = 0; i < n; ++i) y[at[1] + i] = T(value<kOp>(A(a[at[0] + i]), right));
        },
        args.a, args.y);
    return;
  }
  const RowWalk<3> walk(shape,
                        {args.a.strides(), broadcast_strides(args.b, shape), args.y.strides()});
  parallel_for(shape.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    walk.run(begin, end, [&](const auto& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        y[at[2] + i] = T(value<kOp>(A(a[at[0] + i]), A(b[at[1] + i])));
      }
    });
  });
}

template <class Sum, class Target>
void store_sum(Target& target, Sum sum, bool accumulate) {
  target = Target(accumulate ? Sum(target) + sum : sum);
}

// The gradient of a broadcast b: sums of `term(r, j)` over the R repetitions of its n elements.
template <class Target, class Sum, class Term>
void sum_repetitions(Target* db, int64_t repetitions, int64_t n, bool accumulate, Term&& term) {
  if (n == 1) {
    store_sum(*db,
              parallel_sum_row<Sum>(repetitions,
                                    [&](int64_t block) {
                                      const int64_t begin = block * kSumBlock;
                                      return sum_block<Sum>(
                                          begin, std::min(kSumBlock, repetitions - begin),
                                          [&](int64_t r) { return term(r, int64_t{0}); });
                                    }),
              accumulate);
    return;
  }
  parallel_for(n, kColumnBlock, [&](int64_t begin, int64_t end) {
    std::array<Sum, kColumnBlock> sum;
    sum_columns(repetitions, begin, end - begin, term, sum.data());
    for (int64_t j = begin; j < end; ++j) {
      store_sum(db[j], sum[static_cast<size_t>(j - begin)], accumulate);
    }
  });
}

template <class T, class Target, BinaryOp kOp>
void backward_b(const BinaryBackward& args) {
  using A = AccumulatorOf<T>;
  constexpr bool kLinear = kOp == BinaryOp::add || kOp == BinaryOp::sub;
  const T* a = kLinear ? nullptr : args.a.data_as<T>();
  const T* b = kLinear ? nullptr : args.b.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  Target* db = args.db.data_as<Target>();
  const auto term = [=](int64_t ia, int64_t ib, int64_t idy) {
    if constexpr (kLinear) return gradient_b<kOp>(A(0), A(0), A(dy[idy]));
    return gradient_b<kOp>(A(a[ia]), A(b[ib]), A(dy[idy]));
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
  sum_repetitions<Target, A>(db, shape.numel() / n, n, args.accumulate_db,
                             [&](int64_t r, int64_t j) { return term(r * n + j, j, r * n + j); });
}

template <class T, BinaryOp kOp>
void backward_a(const BinaryBackward& args) {
  using A = AccumulatorOf<T>;
  constexpr bool kLinear = kOp == BinaryOp::add || kOp == BinaryOp::sub;
  const T* a = kLinear ? nullptr : args.a.data_as<T>();
  const T* b = kLinear ? nullptr : args.b.data_as<T>();
  const T* dy = args.dy.data_as<T>();
  T* da = args.da.data_as<T>();
  const Shape& shape = args.dy.shape();
  const bool one = args.b.numel() == 1;
  const Strides left = kLinear ? args.dy.strides() : args.a.strides();
  const Strides right = one ? left : broadcast_strides(args.b, shape);
  const RowWalk<4> walk(shape, {left, right, args.dy.strides(), args.da.strides()});
  parallel_for(shape.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    walk.run(begin, end, [&](const auto& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const A d = A(dy[at[2] + i]);
        if constexpr (kLinear) {
          da[at[3] + i] = T(gradient_a<kOp>(A(0), A(0), d));
        } else {
          const A right_value = A(b[one ? 0 : at[1] + i]);
          da[at[3] + i] = T(gradient_a<kOp>(A(a[at[0] + i]), right_value, d));
        }
      }
    });
  });
}

}  // namespace

void binary(const Binary& args) {
  dispatch_float(args.a.dtype(), [&]<class T>() {
    dispatch_binary(args.op, [&]<BinaryOp kOp>() { forward<T, kOp>(args); });
  });
}

void binary_scalar(const BinaryScalar& args) {
  dispatch_float(args.a.dtype(), [&]<class T>() {
    using A = AccumulatorOf<T>;
    const T* a = args.a.data_as<T>();
    T* y = args.y.data_as<T>();
    const A b = static_cast<A>(args.b);
    dispatch_binary(args.op, [&]<BinaryOp kOp>() {
      parallel_elements(
          args.a.shape(),
          [&](const auto& at, int64_t n) {
            for (int64_t i = 0; i < n; ++i) y[at[1] + i] = T(value<kOp>(A(a[at[0] + i]), b));
          },
          args.a, args.y);
    });
  });
}

void binary_backward(const BinaryBackward& args) {
  dispatch_float(args.dy.dtype(), [&]<class T>() {
    dispatch_binary(args.op, [&]<BinaryOp kOp>() {
      if (args.db) {
        if (args.db.dtype() == args.dy.dtype()) {
          backward_b<T, T, kOp>(args);
        } else if constexpr (sizeof(T) == 2) {
          backward_b<T, float, kOp>(args);
        }
      }
      if (args.da) backward_a<T, kOp>(args);
    });
  });
}

}  // namespace zinc::kernels::cpu
