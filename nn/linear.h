// nn/linear.h: y = activation(x W^T + b).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "nn/module.h"

namespace zinc::nn {

// How ranks that share a model slice a layer: nn/tensor_ranks.h.
enum class Split : uint8_t {
  none,     // each has all of it
  columns,  // each gives a part of the output features
  rows,     // each takes a part of the input features; the outputs are summed
};

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
  Split split = Split::none;
  // Of Split::columns: sizes of parts of `out` that are sliced each by itself, as queries, keys and
  // values; empty: one.
  std::vector<int64_t> sections{};
  // Of Split::columns: the input comes from TensorRanks::spread() already, for several layers.
  bool spread = false;
};

class LoraAdapter;  // nn/lora.h

// Parameters "weight" [out, in] (in_out: [in, out]) and "bias" [out].
class Linear : public Module {
 public:
  Linear(Module& parent, std::string name, const LinearOptions& options);
  ~Linear() override;
  // [..., in] -> [..., out]; where ranks share the layer, this rank's part of a split dimension.
  Tensor forward(const Tensor& x);
  // Of what forward() would give as logits: the sum of the cross entropies of labels [...], without
  // the logits of the whole batch. Not for layers in_out or with an activation. With an adapter
  // there are logits of the whole batch.
  Tensor cross_entropy(const Tensor& x, const Tensor& labels);

  const LinearOptions& options() const { return options_; }
  // InvalidArgument where the layer has an adapter: the weight is not all of it then.
  Parameter& weight();
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  LoraAdapter* adapter() { return adapter_.get(); }  // null: none

 protected:
  void on_share() override;

 private:
  LinearOptions options_;
  Parameter weight_;
  std::optional<Parameter> bias_;

  friend class LoraAdapter;
  std::unique_ptr<LoraAdapter> adapter_;
};

// The classes that this rank has of a head whose weight is sliced.
autograd::ClassShare class_share(TensorRanks& ranks, const Parameter& weight);

}  // namespace zinc::nn
