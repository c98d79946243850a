// nn/attention/self_attention.h: layers of multi-head self-attention over nn/attention/attend.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "autograd/ops/rotary.h"
#include "nn/attention/attend.h"
#include "nn/dropout.h"
#include "nn/linear.h"

namespace zinc::nn {

struct SelfAttentionOptions {
  int64_t features = 0;  // C
  int64_t heads = 0;     // H; C % H == 0
  int64_t kv_heads = 0;  // heads of keys and values, H % kv_heads == 0; 0: H
  bool causal = true;
  bool bias = true;                   // bias of c_attn
  std::optional<bool> output_bias{};  // bias of c_proj; absent: as `bias`
  autograd::RotaryLayout rotary_layout = autograd::RotaryLayout::half_split;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  // GPT-2 stores its projections transposed (Conv1D).
  autograd::WeightLayout layout = autograd::WeightLayout::out_in;
  std::optional<autograd::Initializer> initializer;         // for c_attn
  std::optional<autograd::Initializer> output_initializer;  // for c_proj
  std::string qkv_name = "c_attn";                          // the members' names
  std::string output_name = "c_proj";
};

// Vaswani et al. 2017. Members "c_attn" (features -> all of q, then k, then v) and "c_proj".
class SelfAttention : public AttentionLayer {
 public:
  SelfAttention(Module& parent, std::string name, const SelfAttentionOptions& options);
  Tensor forward(const Tensor& x, const AttentionScope& scope = {},
                 const PositionTerms& positions = {});  // [B, T, C] -> [B, T, C]
  // residual + forward(x)
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x,
                           const AttentionScope& scope = {}, const PositionTerms& positions = {});

 private:
  Linear c_attn_;
  Linear c_proj_;
  Dropout resid_dropout_;
};

// torch.nn.MultiheadAttention of one text, in both directions. Members "in_proj_weight" [3 C, C]
// (all of q, then k, then v), "in_proj_bias" [3 C] and "out_proj".
class MultiheadAttention : public AttentionLayer {
 public:
  MultiheadAttention(Module& parent, std::string name, int64_t features, int64_t heads,
                     double dropout);
  Tensor forward(const Tensor& x, const AttentionScope& scope);  // [B, T, C] -> [B, T, C]

 protected:
  void on_share() override;

 private:
  Parameter in_proj_weight_;
  Parameter in_proj_bias_;
  Linear out_proj_;
  std::shared_ptr<const autograd::LinearSlices> slices_;  // of in_proj; null: not fixed
};

}  // namespace zinc::nn
