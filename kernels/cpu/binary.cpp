#include "kernels/binary.h"

#include <algorithm>

#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/element_blocks.h"
#include "kernels/cpu/plain_elements.h"
#include "kernels/cpu/row_sum.h"

namespace zinc::kernels::cpu {

void binary_sums_lanes(const BinaryBackward& args);

namespace {

template <class Sum, class Target>
void store_sum(Target& target, Sum sum, bool accumulate) {
  target = Target(accumulate ? Sum(target) + sum : sum);
}

// The gradient of a b that is repeated as a row.
void sum_repetitions(const BinaryBackward& args) {
  const int64_t n = args.b.numel();
  if (n == 0) return;
  const bool reads = reads_arguments(args.op);
  const double* a = reads ? args.a.data_as<double>() : args.dy.data_as<double>();
  const double* b = args.b.data_as<double>();
  const double* dy = args.dy.data_as<double>();
  double* db = args.db.data_as<double>();
  const int64_t repetitions = args.dy.numel() / n;
  const auto term = [=](int64_t r, int64_t j) {
    const double right = reads ? b[j] : 0.0;
    return gradient_of_b(args.op, F64(a[r * n + j]), F64(right), F64(dy[r * n + j])).value;
  };
  if (n == 1) {
    const double sum = parallel_sum_row<double>(repetitions, [&](int64_t block) {
      const int64_t begin = block * kSumBlock;
      return sum_block<double>(begin, std::min(kSumBlock, repetitions - begin),
                               [&](int64_t r) { return term(r, int64_t{0}); });
    });
    return store_sum(*db, sum, args.accumulate_db);
  }
  parallel_for(n, kColumnBlock, [&](int64_t begin, int64_t end) {
    std::array<double, kColumnBlock> sum;
    sum_columns(repetitions, begin, end - begin, term, sum.data());
    for (int64_t j = begin; j < end; ++j) {
      store_sum(db[j], sum[static_cast<size_t>(j - begin)], args.accumulate_db);
    }
  });
}

void backward_f64(const BinaryBackward& args, const ConstView& a, const ConstView& b) {
  const std::array<ConstView, 3> in{a, b, args.dy};
  if (args.db && args.db.shape() != args.dy.shape()) {
    sum_repetitions(args);
  } else if (args.db && args.accumulate_db) {
    map_plain<double, double>(args.db, std::array<ConstView, 4>{a, b, args.dy, args.db},
                              [&](F64 left, F64 right, F64 dy, F64 before) {
                                return (before + gradient_of_b(args.op, left, right, dy)).value;
                              });
  } else if (args.db) {
    map_plain<double, double>(args.db, in, [&](F64 left, F64 right, F64 dy) {
      return gradient_of_b(args.op, left, right, dy).value;
    });
  }
  if (args.da) {
    map_plain<double, double>(args.da, in, [&](F64 left, F64 right, F64 dy) {
      return gradient_of_a(args.op, left, right, dy).value;
    });
  }
}

}  // namespace

void binary(const Binary& args) {
  if (args.a.dtype() != DType::f64) {
    return map_blocks(value_block(args.op), args.y, {args.a, args.b});
  }
  map_plain<double, double>(args.y, std::array<ConstView, 2>{args.a, args.b},
                            [&](F64 a, F64 b) { return value_of(args.op, a, b).value; });
}

void binary_backward(const BinaryBackward& args) {
  // dy stands in the place of arguments that are not read.
  const bool reads = reads_arguments(args.op);
  const ConstView& a = reads ? args.a : ConstView(args.dy);
  const ConstView& b = reads ? args.b : ConstView(args.dy);
  if (args.dy.dtype() == DType::f64) return backward_f64(args, a, b);
  if (args.db && args.db.shape() != args.dy.shape()) {
    binary_sums_lanes(args);
  } else if (args.db && args.accumulate_db) {
    map_blocks(gradient_of_b_block(args.op, true), args.db, {a, b, args.dy, args.db});
  } else if (args.db) {
    map_blocks(gradient_of_b_block(args.op, false), args.db, {a, b, args.dy});
  }
  if (args.da) map_blocks(gradient_of_a_block(args.op), args.da, {a, b, args.dy});
}

}  // namespace zinc::kernels::cpu
