// optim/adafactor.h: Adafactor, which keeps the second moments of a matrix as one number a row and
// one a column.
//
// Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018,
// algorithms 4 to 6, as transformers' Adafactor without a first moment:
//
//   b = 1 - step^decay_rate
//   R = b R + (1 - b) mean of (g^2 + least_square) over each row;  C the same over each column
//   d = g / sqrt(R / mean(R)) / sqrt(C)                 of rank 2 and more; of others,
//   element-wise,
//                                                       V = b V + (1 - b) (g^2 + least_square),
//                                                       d = g / sqrt(V)
//   s = d / max(1, rms(d) / clip_threshold)
//   a = lr                                              times min(1e-2, 1 / sqrt(step)) with
//                                                       relative_step, and max(least_scale, rms(w))
//                                                       with scale_parameter
//   w = w - a weight_decay w - a s                      rms(x) = sqrt(mean(x^2))
//
// Gradients of whole parameters come together on their owners, which keep R, C and V.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/element_update.h"
#include "optim/adafactor_options.h"
#include "optim/element_rule.h"
#include "optim/optimizer.h"

namespace zinc::optim {

class Adafactor final : public WholeRule {
 public:
  // `seed`: for weights with stochastic rounding. Throws InvalidArgument.
  explicit Adafactor(const AdafactorOptions& options, uint64_t seed = 0);

  Asked asked() const override { return Asked::all; }
  bool takes(const autograd::Parameter&) const override { return true; }
  int num_states() const override { return 0; }
  std::string_view state_name(int i) const override;
  // "exp_avg_sq_row": the parameter's shape without its last dimension; "exp_avg_sq_col": without
  // the last but one; "exp_avg_sq": of a parameter of rank 0 or 1.
  int num_vectors() const override { return 3; }
  std::string_view vector_name(int i) const override;
  std::optional<Shape> vector_shape(const Shape& parameter, int i) const override;
  Measures measures() const override { return {.weights = options_.scale_parameter}; }
  void direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;
  // Workspace: as much as the parameter. Means are f32 (f64) in the order of kernels/reduce.h.
  void transform(const WholeParameter& parameter, const HyperParameters& hyper,
                 StreamRef stream) const override;
  // Of update.rates, with scale_parameter.
  void apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;
  int64_t num_scalars() const override;
  void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const override;
  int64_t num_rates() const override { return options_.scale_parameter ? kDecayedStepScalars : 0; }
  void rates(const MeasuredParameter& parameter, const HyperParameters& hyper,
             StreamRef stream) const override;

 private:
  kernels::ElementUpdate direction(const Update& args) const;
  // The running means of update number `step`.
  kernels::ElementUpdate means(int64_t step) const;
  DecayedStep step_of(const HyperParameters& hyper, int64_t step) const;

  const AdafactorOptions options_;
  const uint64_t seed_;
};

}  // namespace zinc::optim
