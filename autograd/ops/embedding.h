// autograd/ops/embedding.h: rows of a token table, plus those of a position table.
#pragma once

#include <cstdint>

#include "autograd/weight.h"
#include "tensor/tensor.h"

namespace zinc::autograd {

struct EmbeddingOptions {
  Tensor positions;   // shape and dtype of ids; undefined: start + place in the last dimension
  int64_t start = 0;  // first position, where `positions` is undefined
  int64_t ignored_id = -1;  // tokens with this id add nothing to the table's gradient; -1: none
  // Ids may be -1, for tokens whose row is in another part of the table. Their rows are zero, and
  // they add nothing to the gradient. Not with a position table.
  bool allows_absent = false;
};

// y[i,:] = table[ids[i],:] + position_table[position(i),:]
// ids: [..., T] i32 | i64, contiguous; table: [V, C] float; position_table: [P, C], dtype of table,
// may be absent. Result: [..., T, C]. An id or position outside its table is an InvalidArgument
// from the stream. Gradients sum in the order of the tokens; deterministic.
Tensor embedding(const Tensor& ids, const Weight& table, const Weight& position_table = {},
                 const EmbeddingOptions& options = {});

}  // namespace zinc::autograd
