// nn/batch.h: what a model is trained on in one micro-batch.
#pragma once

#include <cstdint>
#include <string_view>

#include "nn/named_tensors.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// The label of a position that has no target.
inline constexpr int32_t kIgnoredLabel = -100;

// B rows on the current context's device. A model reads the tensors that it needs by name. Those
// that zinc's own models and data sets have:
//
//   input_ids           [B, T] i32: tokens, 0 <= id < vocabulary; behind a row's end padding
//   labels              [B, T] i32: what follows each token, or stands for it; kIgnoredLabel where
//                       there is no target. Of classes [B], of a decoder's text [B, T of its own]
//   lengths             [B] i32: real tokens of each row; absent: all T
//   document_starts     [B, T] i32: where in its row the token's document begins; absent: at 0
//   positions           [B, T] i32: of the token in its document; absent: that in its row
//   decoder_input_ids   [B, T of the labels] i32; absent: the labels, shifted by the model
//   token_type_ids      [B, T] i32; absent: all 0
//
// The names are the same in all batches of a run; their extents may differ.
struct Batch {
  NamedTensors tensors;
  int64_t num_targets = 0;          // labels that are not kIgnoredLabel: what the loss is a sum of
  int64_t num_tokens = 0;           // tokens that are not padding
  int64_t global_micro_batch = -1;  // index over all ranks and steps: the key of its random
                                    // numbers; -1: not part of training

  // Throws InvalidArgument with the names that there are.
  const Tensor& operator[](std::string_view name) const { return tensors[name]; }
  // Undefined where there is no such tensor.
  Tensor find(std::string_view name) const { return tensors.find(name); }

  // B and T of the first tensor; 1 where it has no such dimension.
  int64_t rows() const { return extent(0); }
  int64_t positions() const { return extent(1); }

 private:
  int64_t extent(int dim) const {
    if (tensors.empty() || tensors.begin()->second.rank() <= dim) return 1;
    return tensors.begin()->second.dim(dim);
  }
};

}  // namespace zinc::nn
