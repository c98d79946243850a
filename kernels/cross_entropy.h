// kernels/cross_entropy.h: summed negative log likelihood of given labels.
//   loss = sum over rows r with labels[r] != -100 of  lse[r] - logits[r, labels[r]]
//   lse[r] = log(sum_c exp(logits[r,c]))
// With label smoothing s in [0, 1], as torch's cross_entropy(label_smoothing=s) summed, a row's
// loss is
//   lse[r] - (1 - s) logits[r, labels[r]] - s mean_c logits[r,c]
// Never divided by the number of targets: one factor is applied where gradients are unscaled.
// Rows in f32, the sum over rows in f64 in a fixed order, on the CPU that of the rows, rounded once
// (all in f64 for f64).
// Deterministic. A label that is neither -100 nor in [0, V) throws InvalidArgument, naming row and
// label, from the work itself (at the call on an inline stream, else at the next synchronize); on a
// GPU it makes the loss and the row's gradient NaN, and the error comes from the next wait for the
// device.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

inline constexpr int64_t kIgnoredLabel = -100;

// The classes that the columns of logits hold, where other holders (tensor ranks) have the other
// classes. Labels are of all classes; a row whose label is elsewhere counts too. lse is then over
// the columns alone. The loss leaves lse out; it is the sum over rows of
//   - (1 - s) logits[r, labels[r]] [in the slice] - s sum_c logits[r,c] / total
// so that the losses of all slices plus the lse over all classes are the loss. Backward takes the
// lse over all classes.
struct ClassSlice {
  int64_t first = 0;
  int64_t total = 0;  // 0: the columns are all classes
};

// InvalidArgument for smoothing outside [0, 1].
void require_smoothing(std::string_view op, double smoothing);
// InvalidArgument for columns that are not among the classes.
void require_slice(std::string_view op, const ClassSlice& slice, int64_t columns);

struct CrossEntropyForward {
  ConstView logits;  // [N, V] f64 | f32 | bf16 | f16; row stride free
  ConstView labels;  // [N] i64 | i32, contiguous
  View loss;         // one element (shape [] or [1]), f32 (f64 for f64); overwritten
  View lse;          // optional [N] f32 (f64 for f64): what backward needs; 0 in ignored rows
  double smoothing = 0.0;
  ClassSlice slice{};
};
void cross_entropy_forward(const CrossEntropyForward& args, StreamRef stream);
Cost cost(const CrossEntropyForward& args);

// dlogits[r,c] = dloss * (exp(logits[r,c] - lse[r]) - (1 - s) [c == labels[r]] - s / V), 0 in
// ignored rows. The product with dloss is taken in f32 and rounded once, so a loss scale in dloss
// keeps small probabilities above the range of f16.
struct CrossEntropyBackward {
  ConstView logits;  // as in forward
  ConstView labels;  // as in forward
  ConstView lse;     // [N] from forward
  ConstView dloss;   // one element, f32 (f64 for f64): the upstream gradient, read on the stream
  View dlogits;      // [N, V] dtype of logits; row stride free; overwritten; may be logits
  double smoothing = 0.0;  // as in forward
  ClassSlice slice{};      // as in forward
};
void cross_entropy_backward(const CrossEntropyBackward& args, StreamRef stream);
Cost cost(const CrossEntropyBackward& args);

}  // namespace zinc::kernels
