// kernels/cpu/attention_rows.h: what happens to a block of scores between its matrix products.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/philox.h"
#include "kernels/attention_problem.h"

namespace zinc::kernels::cpu {

// Columns from `first_column` on, up to the next segment's, are those of keys that lie side by
// side: column c is key c + shift, counted from the key of column 0.
struct ScoreSegment {
  int64_t first_column = 0, shift = 0;
};

// Rows are queries, columns keys of one block; all on the calling thread. Distance, bias and
// dropout are those of the keys c + shift.
struct ScoreBlock {
  int64_t rows = 0, cols = 0;
  float* scores = nullptr;         // [rows, cols] <q, k>; overwritten
  int64_t stride = 0;              // floats
  const KeyRange* keys = nullptr;  // [rows] what each row sees, within [0, cols)
  float scale = 1.0f;
  float softcap = 0.0f;
  float slope = 0.0f;  // ALiBi; column c of row r is at distance |distance + r - c|
  int64_t distance = 0;
  std::span<const ScoreSegment> segments{};  // empty: column c is key c
  const float* bias = nullptr;               // [rows, cols] or null
  int64_t bias_stride = 0;                   // of any sign: Note [Bias by distance]
  float dropout = 0.0f;
  RandomKey dropout_key;
  uint64_t dropout_element = 0;  // of row 0, column 0
  uint64_t dropout_step = 0;     // elements from row to row
  DType dtype = DType::f32;      // dtype of the probabilities below
  // [rows, cols] receives dropped-out probabilities, 0 where nothing is seen; in forward those of
  // the running maximum. f32: may be scores.
  void* probabilities = nullptr;
  int64_t probabilities_stride = 0;  // elements
};

// Online softmax: updates the running maximum and sum of each row; `correction` receives the factor
// for the output so far.
void softmax_block(const ScoreBlock& block, float* max, float* sum, float* correction);

struct ScoreGradients {
  const float* lse = nullptr;             // [rows]
  const float* delta = nullptr;           // [rows] <dout, out>
  const float* dprobabilities = nullptr;  // [rows, cols] <dout, v>, stride of scores
  void* dscores = nullptr;  // [rows, cols] of dtype, times scale, 0 where nothing is seen
  int64_t dscores_stride = 0;
  float* dbias = nullptr;  // optional [rows, cols], accumulates
  int64_t dbias_stride = 0;
};
void softmax_block_backward(const ScoreBlock& block, const ScoreGradients& gradients);

// x[r, :] *= factor[r]
void scale_rows(float* x, int64_t rows, int64_t cols, const float* factor);
// to[e] += x[e] for `count` elements
void add_elements(const float* x, int64_t count, float* to);
// to[r, :] = round(x[r, :] / divisor[r]), 0 where the divisor is 0.
void divide_rows(const float* x, int64_t rows, int64_t cols, const float* divisor, void* to,
                 DType dtype, int64_t to_stride);
// to[r] = <x[r, :], y[r, :]>
void dot_rows(const void* x, int64_t x_stride, const void* y, int64_t y_stride, DType dtype,
              int64_t rows, int64_t cols, float* to);

}  // namespace zinc::kernels::cpu
