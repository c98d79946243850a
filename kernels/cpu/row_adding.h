// kernels/cpu/row_adding.h: adds rows that share an id, for embedding_backward and
// scatter_add_rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/parallel.h"
#include "core/view.h"
#include "kernels/cpu/row_ids.h"
#include "kernels/embedding.h"

namespace zinc::kernels::cpu {

inline constexpr int64_t kAddColumns = 128;  // columns of a thread's turn
inline constexpr int64_t kAddRows = 1024;    // rows of the table of a thread's turn

struct RowAdding {
  std::span<const RowPlace> order;  // from order_by_row
  int64_t rows;                     // of the table
  int64_t cols;
  int64_t x_stride;
  int64_t y_stride;
  bool accumulate;     // false: rows without an id become zero
  int64_t ignored_id;  // contributes nothing
};

// Columns [col, col + cols) of one row of the table, with the entries that add to it.
struct RowTurn {
  std::span<const RowPlace> entries;
  int64_t row;
  int64_t col;
  int64_t cols;
};

// Calls body(turn) for all rows that change and all their parts, in parallel.
template <class Body>
void for_each_row_turn(const RowAdding& plan, Body&& body) {
  const int64_t row_turns = (plan.rows + kAddRows - 1) / kAddRows;
  const int64_t col_turns = (plan.cols + kAddColumns - 1) / kAddColumns;
  // Columns are the outer index: threads then share the frequent ids evenly.
  parallel_for(row_turns * col_turns, 1, [&](int64_t turn, int64_t) {
    const int64_t first = (turn % row_turns) * kAddRows;
    const int64_t last = std::min(plan.rows, first + kAddRows);
    const int64_t col = (turn / row_turns) * kAddColumns;
    const int64_t cols = std::min(kAddColumns, plan.cols - col);
    std::span<const RowPlace> rest = places_of_rows(plan.order, first, last);
    for (int64_t row = first; row < last; ++row) {
      size_t count = 0;
      while (count < rest.size() && int64_t{rest[count].row} == row) ++count;
      std::span<const RowPlace> mine = rest.first(count);
      rest = rest.subspan(count);
      if (row == plan.ignored_id) mine = {};
      if (mine.empty() && plan.accumulate) continue;
      body(RowTurn{.entries = mine, .row = row, .col = col, .cols = cols});
    }
  });
}

// The total of n columns of rows, Note [Sums of rows] in kernels/embedding.h: add(entry, sum) adds
// one row to the n values at `sum`; join(sum, total) adds sums. Inlined where vectors add.
template <class Number, class Add, class Join>
[[gnu::always_inline]] inline void sum_rows(std::span<const RowPlace> entries, int64_t n,
                                            Number* total, const Add& add, const Join& join) {
  std::array<Number, kAddColumns> more;
  for (size_t first = 0; first == 0 || first < entries.size(); first += kRowsOfASum) {
    Number* sum = first == 0 ? total : more.data();
    std::fill_n(sum, n, Number(0));
    const size_t count = std::min(entries.size() - first, static_cast<size_t>(kRowsOfASum));
    for (const RowPlace& entry : entries.subspan(first, count)) add(entry, sum);
    if (first != 0) join(sum, total);
  }
}

// y[row] (+)= the rows of x that name it. x: any float dtype; y: that or f32.
void add_rows(const RowAdding& plan, const ConstView& x, const View& y);
// The same for short dtypes.
void add_rows_lanes(const RowAdding& plan, const ConstView& x, const View& y);
// y[row] = left[left_row] + right[right_row]; contiguous tables of one short dtype.
void add_two_rows_lanes(const ConstView& left, int64_t left_row, const ConstView& right,
                        int64_t right_row, const View& y, int64_t row);

}  // namespace zinc::kernels::cpu
