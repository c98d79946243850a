// nn/encoder_decoder.h: what models of an encoder and a decoder have in common.
#pragma once

#include "nn/attention/attend.h"
#include "nn/attention/kv_cache.h"
#include "nn/model.h"

namespace zinc::nn {

// A model says how texts are read and answers written; generation with kept keys and values
// follows.
class EncoderDecoder : public Model, public EncoderDecoderLm {
 public:
  void encode(const Batch& batch, KvCache& cache) override;
  Tensor next_logits(const Tensor& ids, KvCache& cache) override;

 protected:
  // The encoder's output for the batch's "input_ids", [B, T, C].
  virtual Tensor encoded(const Batch& batch) = 0;
  // Logits [B, V] f32 of the position after the last of ids [B, U], which follow the tokens that
  // the scope knows. source: the encoder's output; undefined where the scope has what the layers
  // read of it.
  virtual Tensor answered(const Tensor& ids, const Tensor& source, const AttentionScope& scope) = 0;
};

}  // namespace zinc::nn
