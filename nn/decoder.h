// nn/decoder.h: what decoder-only language models have in common.
//
// A decoder gives its embedding, its blocks, the norm behind the last block, and its head. Loss,
// stages, outputs and generation are the same for all decoders.
#pragma once

#include <cstdint>

#include "nn/attention/kv_cache.h"
#include "nn/attention/self_attention.h"
#include "nn/lm_head.h"
#include "nn/model.h"
#include "nn/sequence_ranks.h"
#include "nn/stages.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// Stages: the embedding, every block, the head. outputs(): logits and hidden.
class Decoder : public Model,
                public Staged,
                public CachedCausalLm,
                public HasOutputs,
                public SharesSequence,
                public SharesTokens {
 public:
  Tensor loss(const Batch& batch) override { return loss_of_stages(*this, batch); }
  NamedTensors outputs(const Batch& batch) override;
  int64_t num_stages() override { return 2 + num_layers(); }
  TensorList stage(int64_t index, const Batch& batch, TensorList x) override;
  Tensor next_logits(const Tensor& ids) override;
  Tensor next_logits(const Tensor& ids, KvCache& cache) override;
  Linear* logits_layer() override { return head().layer(); }
  void share_sequence(SequenceRanks* ranks) override { sequence_ = ranks; }
  void share_tokens(bool on) override { shares_tokens_ = on; }

 protected:
  virtual int64_t num_layers() const = 0;
  // ids [B, T] -> [B, T, C]
  virtual Tensor embed(const Tensor& ids, const AttentionScope& scope) = 0;
  // The position terms of a block for positions [0, count); none where the embedding contains the
  // positions.
  virtual PositionTerms terms(int64_t /*layer*/, int64_t /*count*/, DType) { return {}; }
  // [B, T, C] -> [B, T, C]
  virtual Tensor block(int64_t layer, const Tensor& x, const AttentionScope& scope,
                       const PositionTerms& positions) = 0;
  virtual Tensor final_norm(const Tensor& x) = 0;
  virtual LmHead& head() = 0;

 private:
  Tensor hidden(const Tensor& ids, KvCache* cache);  // after the norm

  SequenceRanks* sequence_ = nullptr;  // null: all tokens are here
  bool shares_tokens_ = false;         // tensor ranks share the tokens
};

// Throws InvalidArgument unless ids is [B, T] with 1 <= T <= model.max_sequence().
void require_sequence(const Model& model, const Tensor& ids);

// 6 per multiplied weight, and 6 layers x width x sequence for causal attention: the two products
// of scores and values, half of them masked out, forward once and backward twice.
double decoder_flops_per_token(int64_t multiplied_weights, int64_t num_layers, int64_t width,
                               int64_t sequence);

// Operations of one layer per token: scores and values of causal attention to keys fewer than
// `window` positions away, forward once and backward twice.
double causal_attention_flops(int64_t width, int64_t sequence, int64_t window);

// The scope of a batch's tokens: its lengths and document_starts, if any.
AttentionScope scope_of(const Batch& batch);

}  // namespace zinc::nn
