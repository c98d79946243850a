// kernels/cpu/column_sum.h: sums over rows, column by column, in the order of Note [Order of sums].
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/parallel.h"

namespace zinc::kernels::cpu {

inline constexpr int64_t kColumnBlock = 64;  // columns of a thread's turn in the f64 path
inline constexpr int64_t kMaxColumnTurn = 1024;
inline constexpr int64_t kColumnSumRows = 64;  // rows that are added one after the other
inline constexpr int kColumnSumLevels = 32;    // levels of the tree over blocks of rows
inline constexpr int64_t kMinColumnRuns = 8;   // runs of rows below which threads share the columns
inline constexpr int64_t kMaxColumnRuns = 32;

// Columns of a thread's turn on vectors: a turn for every thread, and runs of a row as long as that
// allows. Columns do not mix, so bits do not depend on it.
inline int64_t column_turn(int64_t cols) {
  const int64_t threads = in_parallel_loop() ? 1 : num_parallel_threads();
  const int64_t share = (cols + threads - 1) / threads;
  const int64_t turns = (share + kMaxColumnTurn - 1) / kMaxColumnTurn;  // turns of one thread
  const int64_t even = (share + turns - 1) / turns;
  const int64_t whole = (even + kColumnBlock - 1) / kColumnBlock * kColumnBlock;
  return std::clamp(whole, kColumnBlock, kMaxColumnTurn);
}

// Rows of one of the runs that threads share: a subtree of the sum, so bits do not depend on it.
inline int64_t column_sum_run(int64_t rows) {
  int64_t run = kColumnSumRows;
  while ((rows + run - 1) / run > kMaxColumnRuns) run *= 2;
  return run;
}

// sum[j] = sum over r of term(r, first_col + j), for j < cols <= kColumnBlock.
template <class Sum, class Term>
void sum_columns(int64_t rows, int64_t first_col, int64_t cols, Term&& term, Sum* sum) {
  std::array<std::array<Sum, kColumnBlock>, kColumnSumLevels> partial;
  const int64_t blocks = (rows + kColumnSumRows - 1) / kColumnSumRows;
  for (int64_t block = 0; block < blocks; ++block) {
    int level = 0;
    while (((block >> level) & 1) != 0) ++level;
    Sum* mine = partial[static_cast<size_t>(level)].data();
    const int64_t begin = block * kColumnSumRows;
    const int64_t end = std::min(rows, begin + kColumnSumRows);
    for (int64_t j = 0; j < cols; ++j) mine[j] = term(begin, first_col + j);
    for (int64_t r = begin + 1; r < end; ++r) {
      for (int64_t j = 0; j < cols; ++j) mine[j] += term(r, first_col + j);
    }
    for (int l = 0; l < level; ++l) {
      const Sum* left = partial[static_cast<size_t>(l)].data();
      for (int64_t j = 0; j < cols; ++j) mine[j] = left[j] + mine[j];
    }
  }
  const Sum* total = nullptr;
  for (int level = 0; level < kColumnSumLevels; ++level) {
    if (((blocks >> level) & 1) == 0) continue;
    Sum* mine = partial[static_cast<size_t>(level)].data();
    for (int64_t j = 0; total != nullptr && j < cols; ++j) mine[j] += total[j];
    total = mine;
  }
  for (int64_t j = 0; j < cols; ++j) sum[j] = total == nullptr ? Sum(0) : total[j];
}

}  // namespace zinc::kernels::cpu
