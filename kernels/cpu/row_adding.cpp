#include "kernels/cpu/row_adding.h"

#include <array>

namespace zinc::kernels::cpu {

void add_rows(const RowAdding& plan, const ConstView& x, const View& y) {
  if (x.dtype() != DType::f64) return add_rows_lanes(plan, x, y);
  for_each_row_turn(plan, [&](const RowTurn& turn) {
    std::array<double, kAddColumns> sum;
    const auto add = [&](const double* from, double* to) {
      for (int64_t j = 0; j < turn.cols; ++j) to[j] += from[j];
    };
    sum_rows(
        turn.entries, turn.cols, sum.data(),
        [&](const RowPlace& entry, double* to) {
          add(x.data_as<double>() + int64_t{entry.place} * plan.x_stride + turn.col, to);
        },
        add);
    double* out = y.data_as<double>() + turn.row * plan.y_stride + turn.col;
    for (int64_t j = 0; j < turn.cols; ++j) {
      const double mine = sum[static_cast<size_t>(j)];
      out[j] = plan.accumulate ? out[j] + mine : mine;
    }
  });
}

}  // namespace zinc::kernels::cpu
