// nn/attention/attend.h: the attention that every model calls.
//
// A layer projects its input to rows of queries, keys and values, and says by an AttentionForm what
// its attention computes. attend() returns the output of all heads, which the layer projects back.
// attend() also does what the layer does not know of: ranks that share heads or tokens, the cache
// of generation, padding and packed documents.
//
//   class Attention : public zinc::nn::AttentionLayer {
//    public:
//     Attention(Module& parent, std::string name, int64_t C, int64_t H)
//         : AttentionLayer(parent, std::move(name), {.heads = H, .head_dim = C / H}), C(C) {}
//     zinc::Tensor forward(const zinc::Tensor& x, const zinc::nn::AttentionScope& scope) {
//       return out.forward(attend({.q = qkv.forward(x)}, scope));
//     }
//     int64_t C;
//     zinc::nn::Linear qkv{*this, "qkv", zinc::nn::packed_heads_projection(C, form())};
//     zinc::nn::Linear out{*this, "out", {.in = C, .out = C, .split = zinc::nn::Split::rows}};
//   };
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "autograd/ops/attention.h"
#include "autograd/ops/rotary.h"
#include "nn/linear.h"
#include "nn/module.h"

namespace zinc::nn {

class AttentionLayout;
class KvCache;
class RMSNorm;
class SequenceRanks;

// The tokens of a batch that see each other (on top of causality), and the positions of the tokens.
// Models hand a scope on from the batch to their layers.
struct AttentionScope {
  Tensor lengths;            // [B] i32, may be undefined; see nn::Batch
  Tensor document_starts;    // [B, T] i32, may be undefined
  Tensor positions;          // [B, T] i32; undefined: consecutive from start_of()
  Tensor source_lengths;     // [B] i32, may be undefined: of the text that attend_across() reads
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

// How positions enter the scores of a layer. Each layer may have its own terms, such as another
// rotary table or none.
struct PositionTerms {
  autograd::RotaryTable rotary{};  // cosines and sines that turn q and k; undefined: none
  Tensor alibi_slopes{};           // [H] f32; undefined: none. Autograd's make_alibi_slopes()
  int64_t window = 0;              // keys fewer than so many positions away; 0: all
  // Added to the scores, f32 (f64 for f64): [B or 1, H or 1, Tq, Tk], or by distance
  // [H or 1, Tq + Tk - 1] (autograd/ops/attention.h). H counts the heads of the whole layer.
  // Undefined: none. relative_bias() makes it.
  Tensor bias{};
};

// What the attention of a layer computes. Numbers of heads are those of the whole layer.
struct AttentionForm {
  int64_t heads = 0;      // H
  int64_t kv_heads = 0;   // G, heads of keys and values, H % G == 0; 0: H
  int64_t head_dim = 0;   // D, features of a head of queries and keys
  int64_t value_dim = 0;  // features of a head of values; 0: head_dim
  bool causal = true;
  double scale = 0.0;    // factor of the scores; 0: 1 / sqrt(head_dim)
  double softcap = 0.0;  // scores become softcap * tanh(score / softcap); 0: they stay
  double dropout = 0.0;  // probability that a softmax weight becomes 0, in training
  autograd::RotaryLayout rotary_layout = autograd::RotaryLayout::half_split;
  // Norms of each head's features, before rotary positions. Null: none. RMSNormOptions::of_slice.
  RMSNorm* query_norm = nullptr;
  RMSNorm* key_norm = nullptr;
  // Which blocks of positions see each other, on top of causality and windows; attend_across() has
  // none. Null: all. nn/attention/sparse_attention.h.
  std::shared_ptr<AttentionLayout> layout{};
  // [H]: a logit for each head that takes part in the softmax and has no value. Null: none.
  Parameter* sinks = nullptr;
  uint64_t site = 0;  // of the random numbers of dropout: hash_text() of the layer's path

  int64_t num_kv_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t value_features() const { return value_dim > 0 ? value_dim : head_dim; }
};

// Projected rows of this rank's heads, as layers with Split::columns give them.
struct HeadRows {
  Tensor q;    // [B, T, heads * head_dim]; without k and v: all of q, then k, then v
  Tensor k{};  // [B, T, kv_heads * head_dim]
  Tensor v{};  // [B, T, kv_heads * value_dim]
};

// Each head's mix of values, [B, T, own heads * value_dim]: the input of a layer with Split::rows.
// Throws ConfigError where ranks cannot share the heads or the tokens.
Tensor attend(const Module& layer, const AttentionForm& form, HeadRows rows,
              const AttentionScope& scope, const PositionTerms& positions = {});

// The same for queries of one text and keys and values of another, all of whose tokens are seen,
// such as an encoder's output. q: [B, Tq, ...]. `source` returns k and v, [B, Tk, ...]; it is
// called unless the scope's cache has them for this layer. Call behind the attend() of the block.
using SourceRows = std::function<std::pair<Tensor, Tensor>()>;
Tensor attend_across(const Module& layer, const AttentionForm& form, const Tensor& q,
                     const SourceRows& source, const AttentionScope& scope);

// A module that attends.
class AttentionLayer : public Module {
 public:
  // form.site becomes that of the module's path. Throws InvalidArgument where the form contradicts
  // itself.
  AttentionLayer(Module& parent, std::string name, const AttentionForm& form);

  const AttentionForm& form() const { return form_; }
  // AttentionForm::layout from now on. Throws InvalidArgument for a layout of other heads.
  void take_layout(std::shared_ptr<AttentionLayout> layout);

 protected:
  // For members of the layer. The norms and sinks must outlive it.
  void norm_heads(RMSNorm& queries, RMSNorm& keys);
  void add_sinks(Parameter& sinks);
  // nn::attend() of this layer. Dropout runs in training alone.
  Tensor attend(HeadRows rows, const AttentionScope& scope, const PositionTerms& positions = {});
  Tensor attend_across(const Tensor& q, const SourceRows& source, const AttentionScope& scope);
  void on_share() override;

 private:
  AttentionForm now() const;

  AttentionForm form_;
};

// The projection of `features` to all of q, then k, then v.
LinearOptions packed_heads_projection(int64_t features, const AttentionForm& form);

}  // namespace zinc::nn
