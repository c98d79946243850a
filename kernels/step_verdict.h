// kernels/step_verdict.h: everything that decides over an optimizer step, in one launch: the norm
// of all gradients from the sums of its subtrees, the finite check, the factor of the update,
// whether it is skipped, and the next loss scale. So the host need not see any of it before the
// update is queued.
//
// With `gathered` as R ranks left it and n leaves, sorted by parameter and place in it:
//   leaf[i]  = sums of rank sources[i] / longest, at sources[i] % longest
//   leaf[left] = leaf[left] + leaf[right]        for the merges of each parameter, in order
//   sum of squares = leaf[first of parameter 0] + leaf[first of parameter 1] + ..., from the left
//   count    = targets of all ranks, or micro-batches of all ranks where !by_token
//   divisor  = loss scale * count / wire_divisor
//   factor   = update_factor(sqrt(sum of squares), divisor, clipping)
//   overflow = check_overflow, and a leaf is not finite
//   withheld = stop_at_nonfinite_loss, no overflow, and a loss is not finite: of a micro-batch with
//              targets, or where by_token of any
//   skip     = overflow, withheld, or the count is 0
// and the loss scale advances where the count is not 0 and nothing is withheld. All in f64, by
// kernels/step_rules.h.
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"
#include "kernels/step_rules.h"

namespace zinc::kernels {

// The first bytes of `out`. The update reads `factor` and `skip` there.
struct StepVerdict {
  double sum_of_squares = 0.0;
  double count = 0.0;
  int64_t first_nonfinite = -1;  // leaf, in their order; -1: all are finite
  LossScaleState scale;          // after the step
  float factor = 0.0f;
  int32_t skip = 0;
  int32_t at_minimum = 0;  // an overflow left the loss scale nowhere to fall
  int32_t withheld = 0;
};

struct DecideStep {
  // [ranks * words] f64. Each rank has `num_batches` counts of targets (i64 in the same bytes), as
  // many losses (f32, two in a word) in the words up to `num_headers`, then the sums of its
  // subtrees, at most `longest`.
  ConstView gathered;
  int64_t words = 0, num_headers = 0, num_batches = 0, longest = 0;
  ConstView sources;     // [n] i64
  ConstView merges;      // [merges, 2] i64: left, right
  ConstView parameters;  // [parameters + 1, 2] i64: first leaf, first merge; the last row: the ends
  bool by_token = true;
  bool check_overflow = false;
  bool stop_at_nonfinite_loss = false;
  double clipping = 0.0;  // 0: off
  double wire_divisor = 1.0;
  LossScaleRules rules;
  View leaves;  // [n] f64, overwrites
  View scale;   // [sizeof(LossScaleState)] u8, in place
  // [sizeof(StepVerdict) + ranks * num_headers * 8] u8, overwrites: the verdict, then the headers
  View out;
};

// All views contiguous, on one device. Asynchronous on `stream`. Deterministic.
void decide_step(const DecideStep& args, StreamRef stream);
Cost cost(const DecideStep& args);

// Whether a loss of a micro-batch with this number of targets counts as not finite. For the
// kernels.
ZINC_HOST_DEVICE inline bool is_nonfinite_loss(float loss, int64_t targets, bool by_token) {
  return (by_token || targets > 0) && !is_finite_number(loss);
}

// The last lines of the definition, once the sums are there; `nonfinite_loss` where such a loss
// stops the step. For the kernels.
ZINC_HOST_DEVICE inline StepVerdict judge_step(double summed_norm, double sum_of_squares,
                                               int64_t first_nonfinite, double count,
                                               bool nonfinite_loss, const LossScaleRules& rules,
                                               bool check_overflow, double clipping,
                                               double wire_divisor, LossScaleState& scale) {
  StepVerdict verdict;
  verdict.sum_of_squares = sum_of_squares;
  verdict.count = count;
  verdict.first_nonfinite = first_nonfinite;
  const bool overflow = check_overflow && first_nonfinite >= 0;
  verdict.withheld = nonfinite_loss && !overflow && count > 0.0 ? 1 : 0;
  verdict.skip = overflow || verdict.withheld != 0 || !(count > 0.0) ? 1 : 0;
  if (count > 0.0) {
    verdict.factor = update_factor(summed_norm, scale.scale * count / wire_divisor, clipping);
  }
  if (count > 0.0 && verdict.withheld == 0) {
    verdict.at_minimum = advance_loss_scale(rules, overflow, scale) ? 0 : 1;
  }
  verdict.scale = scale;
  return verdict;
}

}  // namespace zinc::kernels
