// nn/encoder.h: what models that read a whole text at once have in common.
#pragma once

#include <cstdint>
#include <string_view>

#include "nn/model.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// The task that an encoder is trained for; it decides the head.
enum class EncoderTask : uint8_t {
  none,                     // no head and no loss: outputs() alone
  masked_lm,                // labels [B, T]: the tokens that were masked
  sequence_classification,  // labels [B]: a class of each text
  token_classification,     // labels [B, T]: a class of each token
};
std::string_view name_of(EncoderTask task);

// Throws InvalidArgument where the batch packs several documents into a row: attention in both
// directions would mix them.
void require_one_document(const Model& model, const Batch& batch);

// Throws InvalidArgument unless the labels are the task's: [B], or [B, T].
void require_labels(const Model& model, EncoderTask task, const Tensor& ids, const Tensor& labels);

// [B, T, C] -> [B, C]: of each row's first token.
Tensor first_token(const Tensor& hidden);

// 6 per multiplied weight, and 12 layers x width x sequence for attention in both directions: the
// two products of scores and values, forward once and backward twice.
double encoder_flops_per_token(int64_t multiplied_weights, int64_t num_layers, int64_t width,
                               int64_t sequence);

}  // namespace zinc::nn
