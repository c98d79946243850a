// nn/batch.h: the data of one micro-batch, on which a model is trained.
#pragma once

#include <cstdint>
#include <string_view>

#include "nn/named_tensors.h"
#include "tensor/tensor.h"

namespace zinc::nn {

// The label of a position that has no target.
inline constexpr int32_t kIgnoredLabel = -100;

// B rows on the current context's device. A model reads the tensors that it needs, by name. zinc's
// own models and data sets have these:
//
//   input_ids           [B, T] i32: tokens, 0 <= id < vocabulary; padding behind the end of a row
//   labels              [B, T] i32: the target of each position; kIgnoredLabel: no target.
//                       Labels of classes: [B]. Labels of a decoder's text: [B, T of that text]
//   lengths             [B] i32: real tokens of each row; absent: all T
//   document_starts     [B, T] i32: position in its row where the token's document begins;
//                       absent: one document per row
//   positions           [B, T] i32: position of the token in its document; absent: its position in
//                       the row
//   decoder_input_ids   [B, T of the labels] i32; absent: the model shifts the labels
//   token_type_ids      [B, T] i32; absent: all 0
//
// All batches of a run have the same names. Extents may differ.
struct Batch {
  NamedTensors tensors;
  int64_t num_targets = 0;          // labels that are not kIgnoredLabel: the terms of the loss
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
