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

// sum[j] += term(r, j) for the rows [begin, end), in their order; four at a time, so that sums are
// loaded and stored once for four rows. `ahead(r)` may ask the cache for row r.
template <class Term, class Ahead>
HWY_INLINE void add_rows_of_columns(int64_t begin, int64_t end, int64_t cols, const Term& term,
                                    const Ahead& ahead, float* sum) {
  constexpr int64_t kRowsAhead = 16;
  const auto so_far = [=](int64_t j, auto load)
                          HWY_ATTR { return load(static_cast<const float*>(sum) + j); };
  int64_t r = begin;
  for (; r + 4 <= end; r += 4) {
    for (int64_t k = 0; k < 4; ++k) ahead(r + kRowsAhead + k);
    for_each_vector(cols, [&](int64_t j, auto load, auto store) HWY_ATTR {
      auto s = hn::Add(so_far(j, load), term(r, j, load));
      s = hn::Add(s, term(r + 1, j, load));
      s = hn::Add(s, term(r + 2, j, load));
      store(hn::Add(s, term(r + 3, j, load)), sum + j);
    });
  }
  for (; r < end; ++r) {
    for_each_vector(cols, [&](int64_t j, auto load, auto store) HWY_ATTR {
      store(hn::Add(so_far(j, load), term(r, j, load)), sum + j);
    });
  }
}

// sum[j] = sum over r of term(r, j, load) for j < cols <= kMaxColumnTurn. ahead(r), r < rows, asks
// the cache for what the terms of row r read: parts of rows are no stream to the hardware.
template <class Term, class Ahead>
void sum_columns_lanes(int64_t rows, int64_t cols, const Term& term, const Ahead& ahead,
                       float* sum) {
  const auto bounded = [&](int64_t r) HWY_ATTR {
    if (r < rows) ahead(r);
  };
  HWY_ALIGN float partial[kColumnSumLevels][kMaxColumnTurn];
  const auto add = [cols](const float* left, float* right) HWY_ATTR {
    for_each_vector(cols, [=](int64_t j, auto load, auto store) HWY_ATTR {
      store(hn::Add(load(left + j), load(static_cast<const float*>(right) + j)), right + j);
    });
  };
  const int64_t blocks = (rows + kColumnSumRows - 1) / kColumnSumRows;
  for (int64_t block = 0; block < blocks; ++block) {
    int level = 0;
    while (((block >> level) & 1) != 0) ++level;
    float* mine = partial[level];
    const int64_t begin = block * kColumnSumRows;
    for_each_vector(cols, [&](int64_t j, auto load, auto store)
                              HWY_ATTR { store(term(begin, j, load), mine + j); });
    add_rows_of_columns(begin + 1, std::min(rows, begin + kColumnSumRows), cols, term, bounded,
                        mine);
    for (int l = 0; l < level; ++l) add(partial[l], mine);
  }
  const float* total = nullptr;
  for (int level = 0; level < kColumnSumLevels; ++level) {
    if (((blocks >> level) & 1) == 0) continue;
    if (total != nullptr) add(total, partial[level]);
    total = partial[level];
  }
  for (int64_t j = 0; j < cols; ++j) sum[j] = total == nullptr ? 0.0f : total[j];
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
