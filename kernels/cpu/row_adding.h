// kernels/cpu/row_adding.h: adds rows that share an id, for embedding_backward and
// scatter_add_rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/cpu/row_ids.h"

namespace zinc::kernels::cpu {

inline constexpr int64_t kAddColumns = 128;  // columns of a thread's turn
inline constexpr int64_t kAddRows = 1024;    // rows of the table of a thread's turn

struct RowAdding {
  std::span<const RowPlace> order;
  int64_t rows;  // of the table
  int64_t cols;
  int64_t x_stride;
  int64_t y_stride;
  bool accumulate;     // false: rows without an id become zero
  int64_t ignored_id;  // contributes nothing
};

// y[row] (+)= the rows of x named by the entries of one row, in their order; n <= kAddColumns.
template <class T, class Target>
void add_row(std::span<const RowPlace> entries, const T* x, int64_t x_stride, Target* y, int64_t n,
             bool accumulate) {
  using A = AccumulatorOf<T>;
  std::array<A, kAddColumns> sum{};
  for (const RowPlace& entry : entries) {
    const T* row = x + int64_t{entry.place} * x_stride;
    for (int64_t j = 0; j < n; ++j) sum[static_cast<size_t>(j)] += A(row[j]);
  }
  for (int64_t j = 0; j < n; ++j) {
    const A mine = sum[static_cast<size_t>(j)];
    y[j] = Target(accumulate ? A(y[j]) + mine : mine);
  }
}

template <class T, class Target>
void add_rows(const RowAdding& plan, const T* x, Target* y) {
  const int64_t row_turns = (plan.rows + kAddRows - 1) / kAddRows;
  const int64_t col_turns = (plan.cols + kAddColumns - 1) / kAddColumns;
  // Columns are the outer index: threads then share the frequent ids evenly.
  parallel_for(row_turns * col_turns, 1, [&](int64_t turn, int64_t) {
    const int64_t first = (turn % row_turns) * kAddRows;
    const int64_t last = std::min(plan.rows, first + kAddRows);
    const int64_t col = (turn / row_turns) * kAddColumns;
    const int64_t n = std::min(kAddColumns, plan.cols - col);
    std::span<const RowPlace> rest = places_of_rows(plan.order, first, last);
    for (int64_t row = first; row < last; ++row) {
      size_t count = 0;
      while (count < rest.size() && int64_t{rest[count].row} == row) ++count;
      std::span<const RowPlace> mine = rest.first(count);
      rest = rest.subspan(count);
      if (row == plan.ignored_id) mine = {};
      if (mine.empty() && plan.accumulate) continue;
      add_row(mine, x + col, plan.x_stride, y + row * plan.y_stride + col, n, plan.accumulate);
    }
  });
}

}  // namespace zinc::kernels::cpu
