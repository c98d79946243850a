// nn/lora.h: low-rank adapters of linear layers (E. Hu et al., LoRA, 2021).
//
// A layer y = x W^T + b with an adapter gives y + s (dropout(x) A^T) B^T, where A [r, in] and B
// [out, r] are trained and W and b are not; s = alpha / r, or alpha / sqrt(r) (D. Kalajdzievski,
// rsLoRA, 2023). B starts at zero, and so the model starts as it was. A frozen weight has neither
// gradient nor optimizer states, on every ZeRO stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/module.h"

namespace zinc::nn {

struct LoraOptions {
  int64_t rank = 8;              // r, > 0
  double alpha = 16.0;           // > 0
  double dropout = 0.0;          // of the adapter's input, 0 <= p < 1
  bool rank_stabilized = false;  // s = alpha / sqrt(r)
  // Linear layers, by the end of their path: "q_proj", "attn.c_proj". "all-linear": every linear
  // layer but Model::logits_layer().
  std::vector<std::string> targets{};
  // Further modules that are trained whole, by the end of their path: "score".
  std::vector<std::string> modules_to_save{};

  double scale() const;
  void validate() const;  // ConfigError
  friend bool operator==(const LoraOptions&, const LoraOptions&) = default;
};

// Below its layer: "lora_A", "lora_B" without biases, as peft names them.
class LoraAdapter {
 public:
  LoraAdapter(Linear& layer, const LoraOptions& options);
  Tensor forward(const Tensor& x);  // the whole layer: [..., in] -> [..., out]

  double scale() const { return scale_; }
  Linear& down() { return down_; }  // A
  Linear& up() { return up_; }      // B
  // Gives the layer an adapter. InvalidArgument where it has one.
  static void attach(Linear& layer, const LoraOptions& options);

 private:
  Linear& layer_;
  double scale_;
  Dropout dropout_;
  Linear down_;
  Linear up_;
};

// Freezes the model, gives the targets adapters, and leaves those and modules_to_save trainable.
// Before the parameters have values. The paths of the adapted layers, in the model's order. Throws
// ConfigError for a target or a module that matches nothing, with the nearest names.
std::vector<std::string> add_lora(Module& model, const LoraOptions& options);

// Whether the parameter is one of an adapter.
bool is_lora_parameter(std::string_view name);

}  // namespace zinc::nn
