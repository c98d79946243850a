// kernels/cpu/cross_entropy_rows.h: loss and gradient of rows of logits, for cross_entropy and
// linear_cross_entropy.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/cross_entropy.h"

namespace zinc::kernels::cpu {

// For rows r < rows: lse, row_loss = lse - (1 - smoothing) logit of the label - smoothing mean of
// the logits and, where dlogits is given,
//   dlogits = scale * (exp(logits - lse) - (1 - smoothing) onehot(label) - smoothing / classes),
// each 0 in rows whose label is ignored.
struct CrossEntropyRows {
  int64_t rows = 0, classes = 0;
  DType dtype = DType::f32;  // of logits: any float
  const void* logits = nullptr;
  int64_t logits_stride = 0;         // elements
  ConstView labels;                  // [rows]
  const void* lse = nullptr;         // [rows] f32 | f64: given, or null: computed here
  void* lse_out = nullptr;           // optional [rows] f32 | f64, where lse is null
  double* row_loss = nullptr;        // optional [rows], where lse is null
  void* dlogits = nullptr;           // optional
  DType dlogits_dtype = DType::f32;  // dtype, or with f32 logits bf16 | f16
  // Elements of dlogits_dtype. dlogits may lie in the memory of logits as long as row r of it
  // begins where row r of logits begins.
  int64_t dlogits_stride = 0;
  double scale = 1.0;            // in f32 where logits are not f64
  const void* factor = nullptr;  // optional: one f32 | f64, multiplies scale
  double smoothing = 0.0;
  // With a total, labels are of all classes, row_loss leaves lse out, and `label` is the label's
  // place among the columns.
  ClassSlice slice{};

  int64_t all_classes() const { return slice.total > 0 ? slice.total : classes; }
  // The gradient subtracts off_elsewhere() from the probability of every class but the label, and
  // off_label() from that of the label.
  double off_elsewhere() const { return smoothing / static_cast<double>(all_classes()); }
  double off_label() const { return 1.0 - smoothing + off_elsewhere(); }
};

// The gradient of one row, in f32: dlogits = scale * (exp(logits - lse) - off).
struct RowGradient {
  float lse = 0.0f;
  int64_t label = 0;  // -1: none of the columns
  float scale = 1.0f;
  float off_label = 1.0f;
  float off_elsewhere = 0.0f;
};

// All threads. Throws InvalidArgument for a label outside [0, all_classes()) that is not ignored.
void cross_entropy_rows(std::string_view op, const CrossEntropyRows& args);

// loss = sum of row_loss in order, rounded to the dtype of loss (f32 | f64, one element).
void sum_row_losses(const double* row_loss, int64_t rows, const View& loss);

}  // namespace zinc::kernels::cpu
