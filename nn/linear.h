// nn/linear.h: y = activation(x W^T + b).
#pragma once

#include <memory>
#include <optional>

#include "autograd/ops/linear.h"
#include "nn/module.h"

namespace zinc::nn {

struct LinearOptions {
  int64_t in = 0;
  int64_t out = 0;
  bool bias = true;
  // in_out: GPT-2's Conv1D, whose weight is stored transposed.
  autograd::WeightLayout layout = autograd::WeightLayout::out_in;
  autograd::Activation activation = autograd::Activation::none;  // fused into the product
  // Of the weight; absent: uniform in +-1/sqrt(in), as torch.nn.Linear. The bias starts the same
  // way, or at zero where an initialiser is given.
  std::optional<autograd::Initializer> initializer;
};

class LoraAdapter;  // nn/lora.h

// Parameters "weight" [out, in] (in_out: [in, out]) and "bias" [out].
class Linear : public Module {
 public:
  Linear(Module& parent, std::string name, const LinearOptions& options);
  ~Linear() override;
  Tensor forward(const Tensor& x);  // [..., in] -> [..., out]
  // Of what forward() would give as logits: the sum of the cross entropies of labels [...], without
  // the logits of the whole batch. Not for layers in_out or with an activation. With an adapter
  // there are logits of the whole batch.
  Tensor cross_entropy(const Tensor& x, const Tensor& labels);

  const LinearOptions& options() const { return options_; }
  // InvalidArgument where the layer has an adapter: the weight is not all of it then.
  Parameter& weight();
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  LoraAdapter* adapter() { return adapter_.get(); }  // null: none

 private:
  LinearOptions options_;
  Parameter weight_;
  std::optional<Parameter> bias_;

  friend class LoraAdapter;
  std::unique_ptr<LoraAdapter> adapter_;
};

}  // namespace zinc::nn
