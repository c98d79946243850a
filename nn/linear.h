// nn/linear.h: y = activation(x W^T + b).
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "nn/module.h"

namespace zinc::nn {

// How ranks that share a model slice a layer: nn/tensor_ranks.h.
enum class Split : uint8_t {
  none,     // each rank has the whole layer
  columns,  // each rank gives a part of the output features
  rows,     // each rank takes a part of the input features; the outputs are summed
};

struct LinearOptions {
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  // in_out: GPT-2's Conv1D, whose weight is stored transposed.
  autograd::WeightLayout layout = autograd::WeightLayout::out_in;
  autograd::Activation activation = autograd::Activation::none;  // fused into the product
  // Initialiser of the weight. Absent: weight and bias uniform in +-1/sqrt(in), as torch.nn.Linear.
  // With an initialiser the bias starts at zero.
  std::optional<autograd::Initializer> initializer;
  Split split = Split::none;
  // With Split::columns: sizes of the parts of `out` that are sliced separately, such as queries,
  // keys and values. Empty: `out` is one part.
  std::vector<int64_t> sections{};
  // With Split::columns: true if the input comes from TensorRanks::enter() already, for several
  // layers.
  bool spread = false;
};

class Dropout;      // nn/dropout.h
class LoraAdapter;  // nn/lora.h

// The sum of a residual stream and the output of a branch.
struct ResidualSum {
  Tensor x;       // the sum, or its first term
  Tensor term{};  // the second term, where the two are not added yet
  Tensor value() const;
};

// Parameters "weight" [out, in] (in_out: [in, out]) and "bias" [out].
class Linear : public Module {
 public:
  Linear(Module& parent, std::string name, const LinearOptions& options);
  ~Linear() override;
  // [..., in] -> [..., out]. If ranks share the layer: this rank's part of the split dimension.
  Tensor forward(const Tensor& x);
  // residual + dropout(forward(x)). The sum is made in the product's pass, and rounded once, unless
  // ranks, an adapter or dropout come between.
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x, Dropout* dropout = nullptr);
  // forward() of layers with Split::columns and .spread, for one input x that is the same on all
  // ranks, or shared between them. Makes the first product beside the transfer of x:
  // TensorRanks::enter_product().
  static std::vector<Tensor> of_one_input(const Tensor& x, std::initializer_list<Linear*> layers);
  // The same as one product, results side by side: [..., sum of out]. Undefined where one product
  // cannot stand for the layers: tensor ranks share them, one has an adapter, an activation or a
  // quantized weight, or only some of the layers are trained or have a bias. Note [Weights side by
  // side] in autograd/weight.h.
  static Tensor as_one_product(const Tensor& x, std::initializer_list<Linear*> layers);
  // The sum of the cross entropies of labels [...] with forward()'s result as logits. The logits of
  // the whole batch are never stored, unless the layer has an adapter. Not for layers in_out or
  // with an activation.
  Tensor cross_entropy(const Tensor& x, const Tensor& labels);

  const LinearOptions& options() const { return options_; }
  // The products of forward() and of its backward pass take 8 bits from now on:
  // autograd/ops/linear.h.
  void set_fp8(bool fp8) { fp8_ = fp8; }
  // Throws InvalidArgument if the layer has an adapter: the weight alone is not the layer then.
  Parameter& weight();
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  LoraAdapter* adapter() { return adapter_.get(); }  // null: none

 protected:
  void on_share() override;

 private:
  // The layer without its adapter.
  Tensor plain(const Tensor& x, autograd::Activation activation);
  // The product with an input that enter() has made ready for slices.
  Tensor columns(const Tensor& x, autograd::Activation activation,
                 autograd::LinearOptions::InRows in_rows = {});

  LinearOptions options_;
  Parameter weight_;
  std::optional<Parameter> bias_;
  std::shared_ptr<const autograd::LinearSlices> slices_;  // null: not fixed
  bool fp8_ = false;

  friend class LoraAdapter;
  std::unique_ptr<LoraAdapter> adapter_;
};

// Products of 8 bits in all linear layers of the model but the one that makes its logits, whose
// dtype has to be bf16, or none: Note [Products of 8 bits] in kernels/gemm.h. Adapters of LoRA keep
// bf16.
void use_fp8(Module& model, bool fp8 = true);

// autograd::linear_cross_entropy() for a head whose classes are shared: each rank has a slice of
// the weight [V, C] and of the bias.
Tensor shared_cross_entropy(TensorRanks& ranks, const Tensor& hidden, Parameter& weight,
                            const Tensor& labels, const autograd::Weight& bias = {});

}  // namespace zinc::nn
