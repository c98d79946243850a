// kernels/embedding.h: looks up rows of a token table and, in the same pass, of a position table.
// y[i,:] = table[ids[i],:] + position_table[position(i),:]
// position(i) = positions[i], or start + i % sequence_length where there are no `positions`.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

inline constexpr int64_t kAbsentRow = -1;

// N tokens: all dimensions of ids, row-major.
struct EmbeddingForward {
  ConstView ids;                // any shape with N elements, i32 | i64, contiguous
  bool allows_absent = false;   // true: kAbsentRow among ids is a token whose row lies elsewhere,
                                // and y is zero there; without position_table
  ConstView table;              // [V, C] f64 | f32 | bf16 | f16, contiguous
  ConstView position_table{};   // [P, C] dtype of table, contiguous; may be absent
  ConstView positions{};        // N elements, dtype of ids, contiguous; may be absent
  int64_t start = 0;            // read only where `positions` is absent
  int64_t sequence_length = 0;  // > 0 where position_table is given and `positions` is absent
  View y;  // [..., C] with N rows, dtype of table, contiguous, overwrites. The sum with the
           // position is in f32 (f64) and rounded once.
};

// Note [Sums of rows]
// Rows that share an id are added in the order of their places, in f32 (f64), 64 of them to a sum;
// these sums are added in order, and the total is rounded once. So a GPU sums the repeats of a
// common word on many warps, in one order whatever the number of warps or threads.
inline constexpr int64_t kRowsOfASum = 64;

// dtable[v,:] (+)= sum of dy[i,:] over all i with ids[i] == v, Note [Sums of rows]. The gradient of
// position_table: the same call with `positions` as ids; without `positions`, `reduce` (sum over
// leading) of dy seen as [N / T, T * C].
struct EmbeddingBackward {
  ConstView ids;               // N elements, i32 | i64, contiguous
  bool allows_absent = false;  // as in forward; absent rows add nothing
  ConstView dy;                // [..., C] with N rows, contiguous
  View dtable;                 // [V, C] dtype of dy or f32, contiguous
  bool accumulate = false;     // false: overwrites all of dtable, rows without a token become 0
  int64_t ignored_id = -1;     // tokens with this id contribute nothing (a padding row); -1: none
  View workspace;              // u8, at least embedding_backward_workspace_bytes(N), aligned to 8
};

int64_t embedding_backward_workspace_bytes(int64_t num_tokens);

// Asynchronous on `stream`. Deterministic: no bit depends on the number of threads. An id or
// position outside its table is an InvalidArgument from the stream that names the first such place;
// on a GPU its row of y is NaN, its gradient is dropped, and the error (of any such place) comes
// from the next wait for the device.
void embedding_forward(const EmbeddingForward& args, StreamRef stream);
void embedding_backward(const EmbeddingBackward& args, StreamRef stream);
Cost cost(const EmbeddingForward& args);
Cost cost(const EmbeddingBackward& args);

}  // namespace zinc::kernels
