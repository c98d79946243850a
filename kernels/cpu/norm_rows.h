// kernels/cpu/norm_rows.h: how the norms' passes go over rows, for any arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/parallel.h"
#include "core/view.h"
#include "kernels/cpu/norm_blocks.h"
#include "kernels/cpu/past_caches.h"

namespace zinc::kernels::cpu {

// Rows of a thread's turn in a forward pass.
inline int64_t norm_row_grain(int64_t cols, bool past_caches = false) {
  return std::max<int64_t>(1, past_caches_grain(int64_t{1} << 14, past_caches) / (cols + 1));
}

// The place where one block of rows sums its part of dgamma and dbeta; each [cols].
template <class A>
struct NormPartials {
  A* dgamma_run;
  A* dbeta_run;
  A* dgamma_total;
  A* dbeta_total;
};

template <class A>
NormPartials<A> norm_partials(void* workspace, int64_t block, int64_t cols) {
  A* first = static_cast<A*>(workspace) + block * kNormPartials * cols;
  return {first, first + cols, first + 2 * cols, first + 3 * cols};
}

// Calls row(r, partials) for every row, in parallel over blocks; `row` adds to the runs.
// `fold(run, total, cols)` adds a run to a total and clears it.
template <class A, class Row, class Fold>
void norm_backward_rows(int64_t rows, int64_t cols, void* workspace, bool has_beta, Row&& row,
                        Fold&& fold) {
  const int64_t step = norm_rows_per_block(rows);
  parallel_for(rows, step, [&](int64_t begin, int64_t end) {
    const NormPartials<A> partials = norm_partials<A>(workspace, begin / step, cols);
    std::fill_n(partials.dgamma_run, (has_beta ? 4 : 3) * cols, A(0));
    for (int64_t r = begin; r < end; ++r) {
      row(r, partials);
      if ((r - begin + 1) % kNormRunRows == 0 || r + 1 == end) {
        fold(partials.dgamma_run, partials.dgamma_total, cols);
        if (has_beta) fold(partials.dbeta_run, partials.dbeta_total, cols);
      }
    }
    flush_past_caches();  // for the stores of `row`
  });
}

// The f64 fold of a run into a total.
inline void norm_fold_plainly(double* run, double* total, int64_t cols) {
  for (int64_t c = 0; c < cols; ++c) total[c] += run[c];
  std::fill_n(run, cols, 0.0);
}

// target[j] (+)= the totals of all blocks, in their order. T: the dtype of x. Does nothing where
// the target is absent.
template <class A, class T>
void norm_store_sums(const View& workspace, int64_t rows, bool beta, bool accumulate,
                     const View& target) {
  if (!target) return;
  const int64_t cols = target.numel();
  const int64_t blocks = num_norm_blocks(rows);
  const A* first = static_cast<const A*>(workspace.data()) + (beta ? 3 : 2) * cols;
  const auto store = [&]<class Target>(Target* out) {
    parallel_for(cols, 256, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        A sum = A(0);
        for (int64_t k = 0; k < blocks; ++k) sum += first[k * kNormPartials * cols + j];
        out[j] = Target(accumulate ? A(out[j]) + sum : sum);
      }
    });
  };
  if (target.dtype() == kDTypeOf<T>) {
    store(target.data_as<T>());
  } else {
    store(target.data_as<float>());
  }
}

}  // namespace zinc::kernels::cpu
