// optim/muon.h: Muon, which moves a matrix along the orthogonal factor of its momentum.
//
// Jordan et al., "Muon: an optimizer for hidden layers in neural networks", kellerjordan.github.io/
// posts/muon, 2024; Liu et al., "Muon is scalable for LLM training", arXiv:2502.16982, 2025. As
// torch.optim.Muon:
//
//   u = momentum u + (1 - momentum) g                     direct(): the rule muon of
//   d = nesterov ? momentum u + (1 - momentum) g : u      kernels/update_table.h
//   X = d / max(|d|, eps), |d| in the Frobenius norm      transform()
//   X = a X + (b A + c A A) X, A = X X^T                  `steps` times
//   s = X * scale
//   w = w - lr weight_decay w - lr s                      apply(): the rule sgdw there
//
// Jordan's own momentum, u = momentum u + g, gives the same X. With rows > columns the third line
// is the equal X = a X + X (b A + c A A), A = X^T X. rows and columns are those of the parameter as
// it is stored: a layer that stores [in, out] has the other MuonScale::original.
#pragma once

#include <cstdint>
#include <span>

#include "optim/element_rule.h"
#include "optim/muon_options.h"
#include "optim/whole_rule.h"

namespace zinc::optim {

class Muon final : public WholeRule {
 public:
  // `seed`: for states with stochastic rounding. Throws InvalidArgument.
  explicit Muon(MuonOptions options, uint64_t seed = 0);

  // Rank 2, at least two rows and columns, and no pattern of `exclude` matches the name.
  bool takes(const autograd::Parameter& parameter) const override;
  int num_states() const override { return 1; }
  std::string_view state_name(int i) const override;  // "momentum_buffer"
  DType direction_dtype(DType weights) const override {
    return weights == DType::f32 ? options_.products : weights;
  }
  // Throws InvalidArgument for a momentum outside [0, 1). Neither reads nor writes weights.
  void direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;
  // Workspace: as much as the matrix, and two squares of its shorter side. The sum of squares is
  // f64 in a fixed order; products are rounded to the dtype of the matrix. Bits as kernels/gemm.h
  // says: they depend on the shape, not on threads. A zero matrix stays zero.
  void transform(const WholeParameter& parameter, const HyperParameters& hyper,
                 StreamRef stream) const override;
  void apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const override;
  int64_t flops(int64_t rows, int64_t columns) const override;
  int64_t num_scalars() const override;
  void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const override;

 private:
  // Without operands.
  kernels::ElementUpdate direction(const Update& args, const HyperParameters& hyper) const;
  DecayedStep step_of(const HyperParameters& hyper, const ConstView& scalars) const;

  const MuonOptions options_;
  const uint64_t seed_;
};

// Muon for matrices, AdamW for all else. Beside f32 weights the states of both are `elements.
// states`.
class MuonWithAdamW final : public Optimizer {
 public:
  // Throws InvalidArgument.
  explicit MuonWithAdamW(const MuonOptions& matrices, const ElementRuleOptions& elements = {});

  std::string_view name() const override { return "Muon"; }
  int num_states() const override { return elements_.num_states(); }
  std::string_view state_name(int i) const override { return elements_.state_name(i); }
  DType state_dtype() const override { return elements_.state_dtype(); }
  DType weights_dtype() const override { return elements_.weights_dtype(); }
  const WholeRule* whole_rule() const override { return &matrices_; }
  int64_t num_scalars() const override { return elements_.num_scalars(); }
  void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const override {
    elements_.scalars(hyper, step, values);
  }
  void update(const Update& args, const HyperParameters& hyper, StreamRef stream) const override {
    elements_.update(args, hyper, stream);
  }

 private:
  const ElementRule elements_;
  const Muon matrices_;
};

}  // namespace zinc::optim
