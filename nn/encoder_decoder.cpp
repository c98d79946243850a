#include "nn/encoder_decoder.h"

namespace zinc::nn {

void EncoderDecoder::encode(const Batch& batch, KvCache& cache) {
  cache.set_source(encoded(batch), batch.find("lengths"));
}

Tensor EncoderDecoder::next_logits(const Tensor& ids, KvCache& cache) {
  const Tensor logits = answered(ids, cache.source_hidden(),
                                 {.source_lengths = cache.source_lengths(), .cache = &cache});
  cache.advance(ids.dim(1));
  return logits;
}

}  // namespace zinc::nn
