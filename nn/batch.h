// nn/batch.h: what a model is trained on in one micro-batch.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace zinc::nn {

// The label of a position that has no target.
inline constexpr int32_t kIgnoredLabel = -100;

// B sequences of T tokens, on the current context's device. The shapes of all batches of a loader
// are equal; what is shorter is padded with token 0 and label kIgnoredLabel.
struct Batch {
  Tensor input_ids;                 // [B, T] i32, 0 <= id < vocabulary
  Tensor labels;                    // [B, T] i32: what follows each input; kIgnoredLabel: no target
  Tensor lengths;                   // [B] i32: real tokens of each sequence; undefined: all T
  Tensor document_starts;           // [B, T] i32: position at which the token's document begins in
                                    // its row; undefined: one document per row
  int64_t num_targets = 0;          // labels that are not kIgnoredLabel
  int64_t num_tokens = 0;           // tokens that are not padding
  int64_t global_micro_batch = -1;  // index over all ranks and steps: the key of its random
                                    // numbers; -1: not part of training
};

}  // namespace zinc::nn
