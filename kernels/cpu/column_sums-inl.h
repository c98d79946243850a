// kernels/cpu/column_sums-inl.h: sums over rows, column by column, on vectors, in the order of Note
// [Order of sums].
//
// Included once per Highway target, like lanes-inl.h.
#if defined(ZINC_KERNELS_CPU_COLUMN_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZINC_KERNELS_CPU_COLUMN_SUMS_INL_H_
#undef ZINC_KERNELS_CPU_COLUMN_SUMS_INL_H_
#else
#define ZINC_KERNELS_CPU_COLUMN_SUMS_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// sum[j] += term(r, first_col + j) for the rows [begin, end), in their order. One row at a time, as
// memory has them: four together read memory at half the speed.
template <class Term>
HWY_INLINE void add_rows_of_columns(int64_t begin, int64_t end, int64_t first_col, int64_t cols,
                                    const Term& term, float* sum) {
  for (int64_t r = begin; r < end; ++r) {
    for_each_vector(cols, [&](int64_t j, auto load, auto store) HWY_ATTR {
      const auto so_far = load(static_cast<const float*>(sum) + j);
      store(hn::Add(so_far, term(r, first_col + j, load)), sum + j);
    });
  }
}

// right[j] = left[j] + right[j].
HWY_INLINE void add_columns(const float* left, float* right, int64_t cols) {
  for_each_vector(cols, [=](int64_t j, auto load, auto store) HWY_ATTR {
    store(hn::Add(load(left + j), load(static_cast<const float*>(right) + j)), right + j);
  });
}

// The binary tree over leaves of columns that arrive in their order: leaf() is where the next one
// goes, push() adds it, total() ends the tree (null without leaves).
class ColumnTree {
 public:
  HWY_INLINE explicit ColumnTree(int64_t cols) : cols_(cols) {}
  HWY_INLINE float* leaf() { return partial_[level()]; }
  HWY_INLINE void push() {
    const int top = level();
    for (int l = 0; l < top; ++l) add_columns(partial_[l], partial_[top], cols_);
    ++leaves_;
  }
  HWY_INLINE const float* total() {
    float* sum = nullptr;
    for (int level = 0; level < kColumnSumLevels; ++level) {
      if (((leaves_ >> level) & 1) == 0) continue;
      if (sum != nullptr) add_columns(sum, partial_[level], cols_);
      sum = partial_[level];
    }
    return sum;
  }

 private:
  int level() const {
    int level = 0;
    while (((leaves_ >> level) & 1) != 0) ++level;
    return level;
  }

  int64_t cols_;
  int64_t leaves_ = 0;
  HWY_ALIGN float partial_[kColumnSumLevels][kMaxColumnTurn];
};

// sum[j] = sum over the rows [begin, end) of term(r, first_col + j, load) for j < cols <=
// kMaxColumnTurn; begin is a multiple of kColumnSumRows.
template <class Term>
void sum_columns_lanes(int64_t begin, int64_t end, int64_t first_col, int64_t cols,
                       const Term& term, float* sum) {
  ColumnTree tree(cols);
  for (int64_t r = begin; r < end; r += kColumnSumRows) {
    float* leaf = tree.leaf();
    for_each_vector(cols, [&](int64_t j, auto load, auto store)
                              HWY_ATTR { store(term(r, first_col + j, load), leaf + j); });
    add_rows_of_columns(r + 1, std::min(end, r + kColumnSumRows), first_col, cols, term, leaf);
    tree.push();
  }
  const float* total = tree.total();
  for (int64_t j = 0; j < cols; ++j) sum[j] = total == nullptr ? 0.0f : total[j];
}

// emit(j, sum over r < rows of term(r, j, load)) for every column, in parallel: over columns where
// there are few rows, else over runs of rows that are subtrees of the sum, so that memory is read
// in its order.
template <class Term, class Emit>
void parallel_sum_columns(int64_t rows, int64_t cols, const Term& term, const Emit& emit) {
  const int64_t run = column_sum_run(rows);
  const int64_t runs = (rows + run - 1) / run;
  if (runs < kMinColumnRuns) {
    parallel_for(cols, column_turn(cols), [&](int64_t begin, int64_t end) {
      float sum[kMaxColumnTurn];
      sum_columns_lanes(0, rows, begin, end - begin, term, sum);
      for (int64_t j = begin; j < end; ++j) emit(j, sum[j - begin]);
    });
    return;
  }
  float partial[kMaxColumnRuns][kMaxColumnTurn];
  for (int64_t first = 0; first < cols; first += kMaxColumnTurn) {
    const int64_t count = std::min(kMaxColumnTurn, cols - first);
    parallel_for(runs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        sum_columns_lanes(k * run, std::min(rows, (k + 1) * run), first, count, term, partial[k]);
      }
    });
    ColumnTree tree(count);
    for (int64_t k = 0; k < runs; ++k) {
      std::copy_n(partial[k], count, tree.leaf());
      tree.push();
    }
    const float* total = tree.total();
    for (int64_t j = 0; j < count; ++j) emit(first + j, total[j]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
