// nn/mlp.h: the position-wise feed-forward parts of transformer blocks.
#pragma once

#include <string>

#include "nn/dropout.h"
#include "nn/linear.h"

namespace zinc::nn {

enum class MlpActivation : uint8_t { gelu_tanh, gelu_erf, silu, relu };

struct MlpOptions {
  int64_t features = 0;  // C
  int64_t hidden = 0;
  MlpActivation activation = MlpActivation::gelu_tanh;
  bool bias = true;
  double dropout = 0.0;
  autograd::WeightLayout layout = autograd::WeightLayout::out_in;
  std::optional<autograd::Initializer> initializer;         // for c_fc
  std::optional<autograd::Initializer> output_initializer;  // for c_proj
  std::string inner_name = "c_fc";                          // the members' names
  std::string output_name = "c_proj";
};

// c_proj(activation(c_fc(x))); GPT-2's names.
class Mlp : public Module {
 public:
  Mlp(Module& parent, std::string name, const MlpOptions& options);
  Tensor forward(const Tensor& x);                                    // [..., C] -> [..., C]
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x);  // residual + forward(x)

 private:
  Tensor inner(const Tensor& x);

  bool relu_;  // ReLU is the one activation that is not in the product's epilogue
  Linear c_fc_;
  Linear c_proj_;
  Dropout dropout_;
};

struct GatedMlpOptions {
  int64_t features = 0;  // C
  int64_t hidden = 0;
  bool bias = false;
  std::optional<autograd::Initializer> initializer;
};

// down_proj(silu(gate_proj(x)) * up_proj(x)) (Shazeer 2020, SwiGLU); Llama's names.
class GatedMlp : public Module {
 public:
  GatedMlp(Module& parent, std::string name, const GatedMlpOptions& options);
  Tensor forward(const Tensor& x);
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x);  // residual + forward(x)

 private:
  Tensor inner(const Tensor& x);

  Linear gate_proj_;
  Linear up_proj_;
  Linear down_proj_;
};

struct PackedGatedMlpOptions {
  int64_t features = 0;  // C
  int64_t hidden = 0;
  bool bias = false;
  double dropout = 0.0;
  std::optional<autograd::Initializer> initializer;
  std::string inner_name = "gate_up_proj";  // the members' names
  std::string output_name = "down_proj";
};

// GatedMlp with gate and up as one product, gate first.
class PackedGatedMlp : public Module {
 public:
  PackedGatedMlp(Module& parent, std::string name, const PackedGatedMlpOptions& options);
  Tensor forward(const Tensor& x);
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x);  // residual + forward(x)

 private:
  Linear gate_up_proj_;
  Linear down_proj_;
  Dropout dropout_;
};

}  // namespace zinc::nn
