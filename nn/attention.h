// nn/attention.h: multi-head self-attention with one packed projection.
#pragma once

#include <string>

#include "autograd/ops/attention.h"
#include "autograd/ops/rotary.h"
#include "nn/dropout.h"
#include "nn/linear.h"

namespace zinc::nn {

class KvCache;
class SequenceRanks;

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

// The tokens of a batch that see each other (on top of causality), and the positions of the tokens.
struct AttentionScope {
  Tensor lengths;            // [B] i32, may be undefined; see nn::Batch
  Tensor document_starts;    // [B, T] i32, may be undefined
  Tensor positions;          // [B, T] i32; undefined: consecutive from start_of()
  KvCache* cache = nullptr;  // the tokens follow those in the cache, and are added to it
  // Ranks that each have a part of the tokens; the tensors above are of all tokens. Null: this rank
  // has all tokens.
  SequenceRanks* sequence = nullptr;
  int64_t start = 0;  // position of the first token here, without a cache
};

// The position of the first token of a pass, where the scope has no positions.
int64_t start_of(const AttentionScope& scope);

// keeps_queries(): ranks share the tokens, and each keeps its queries. gets_heads(): ranks share
// the tokens, and exchange tokens for heads.
bool keeps_queries(const AttentionScope& scope);
bool gets_heads(const AttentionScope& scope);

// How positions enter the scores of a layer.
struct PositionTerms {
  autograd::RotaryTable rotary{};  // cosines and sines that turn q and k; undefined: none
  Tensor alibi_slopes{};           // [H] f32; undefined: none. Autograd's make_alibi_slopes()
  int64_t window = 0;              // keys fewer than so many positions away; 0: all
};

// Throws InvalidArgument if `ranks` cannot share so many heads. Their number must divide `heads`,
// and must divide `kv_heads` or be a multiple of it. `path`: of the layer, for the message.
void require_shared_heads(const TensorRanks* ranks, std::string_view path, int64_t heads,
                          int64_t kv_heads);
// The keys or values of the heads that this rank's queries look at, [B, T, n * head]. `columns`:
// this rank's columns of the projection. Where there are more ranks than such heads, each rank has
// a part of one head: the parts are joined, and several ranks use the same head.
Tensor own_kv_heads(TensorRanks* ranks, Tensor columns, int64_t kv_heads, int64_t head);
// autograd::attention() of this rank's heads. Dropout differs between slices of heads; `how.site`
// is the site of the whole layer. k and v are absent where q holds all three.
Tensor attend_own_heads(const TensorRanks* ranks, const Tensor& q, const Tensor& k, const Tensor& v,
                        const autograd::AttentionOptions& how);
// The same options with the site of this rank's own heads, where each rank has one slice.
autograd::AttentionOptions of_rank(const TensorRanks* ranks, autograd::AttentionOptions how);

// The heads of a layer whose queries, keys and values lie side by side.
struct PackedHeads {
  int64_t heads = 0, kv_heads = 0;  // of the whole layer
  int64_t head_dim = 0;
  bool causal = true;
  autograd::RotaryLayout rotary_layout = autograd::RotaryLayout::half_split;
  double dropout = 0.0;  // of the softmax weights; 0 in evaluation
  uint64_t site = 0;
};
// The output of each head, [B, T, own heads * head_dim], before the output projection. qkv: this
// rank's columns of all of q, then k, then v, [B, T, ...]. `path`: of the layer, for messages.
Tensor mix_heads(std::string_view path, const PackedHeads& of, TensorRanks* ranks, Tensor qkv,
                 const AttentionScope& scope, const PositionTerms& positions);

// Vaswani et al. 2017. Members "c_attn" (features -> all of q, then k, then v) and "c_proj".
class SelfAttention : public Module {
 public:
  SelfAttention(Module& parent, std::string name, const SelfAttentionOptions& options);
  Tensor forward(const Tensor& x, const AttentionScope& scope = {},
                 const PositionTerms& positions = {});  // [B, T, C] -> [B, T, C]
  // residual + forward(x)
  ResidualSum forward_onto(const Tensor& residual, const Tensor& x,
                           const AttentionScope& scope = {}, const PositionTerms& positions = {});

 protected:
  void on_share() override;

 private:
  // The output of all heads, which c_proj takes.
  Tensor mixed(const Tensor& x, const AttentionScope& scope, const PositionTerms& positions);

  SelfAttentionOptions options_;
  uint64_t site_;
  Linear c_attn_;
  Linear c_proj_;
  Dropout resid_dropout_;
};

}  // namespace zinc::nn
