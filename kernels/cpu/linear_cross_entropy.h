// kernels/cpu/linear_cross_entropy.h: the parts of the fused head between its products. All
// threads.
#pragma once

#include <cstdint>

#include "core/view.h"
#include "kernels/cpu/cross_entropy_rows.h"

namespace zinc::kernels::cpu {

// The rows of one chunk; see CrossEntropyRows. Views that are absent are not computed.
struct HeadRows {
  const char* op = nullptr;
  View logits;       // [rows, classes] f32 | f64
  ConstView labels;  // [rows]
  ConstView lse;     // [rows], given
  ConstView factor;  // one element, multiplies scale
  double scale = 1.0;
  double smoothing = 0.0;
  ClassSlice slice{};
  View lse_out;  // [rows]
  double* row_loss = nullptr;
  View dlogits;  // [rows, classes] any float; in the memory of logits
};
CrossEntropyRows rows_of(const HeadRows& args);
void head_rows(const HeadRows& args);

// sum[c] = (accumulate ? sum[c] : 0) + sum over rows in order of x[r, c]. x: any float, free row
// stride; sum: any float, added up in f32 (f64) and rounded once.
void sum_columns(const ConstView& x, const View& sum, bool accumulate);

// target = round(sum), or round(sum + target). sum: f32, target 16-bit, contiguous.
void round_sum(const ConstView& sum, const View& target, bool accumulate);

}  // namespace zinc::kernels::cpu
