// kernels/gather_rows.h: y[i,:] = x[ids[i],:], and its inverse and transpose.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct GatherRows {
  ConstView x;    // [V, C] any dtype; rows at one stride
  ConstView ids;  // [N] i32 | i64, contiguous
  View y;         // [N, C] dtype of x, overwrites; rows at one stride; must not overlap x
};

// y[ids[i],:] = x[i,:]; rows of y that are not named stay as they are. ids must be distinct:
// otherwise which row remains is not defined.
struct ScatterRows {
  ConstView x;    // [N, C] any dtype; rows at one stride
  ConstView ids;  // [N] i32 | i64, contiguous
  View y;         // [V, C] dtype of x; rows at one stride; must not overlap x
};

// y[ids[i],:] += x[i,:]; equal ids add as in Note [Sums of rows] of kernels/embedding.h.
// Rows of y that are not named stay as they are. The gradient of GatherRows.
struct ScatterAddRows {
  ConstView x;     // [N, C] f64 | f32 | bf16 | f16; rows at one stride
  ConstView ids;   // [N] i32 | i64, contiguous
  View y;          // [V, C] dtype of x or f32, accumulates; rows at one stride; must not overlap x
  View workspace;  // u8, at least scatter_add_rows_workspace_bytes(N), aligned to 8
};

int64_t scatter_add_rows_workspace_bytes(int64_t num_rows);

// Asynchronous on `stream`. Deterministic. An id outside [0, V) is an InvalidArgument from the
// stream that names the first such place; y is then not written. On a GPU that row alone is not
// written, but for gather_rows, where it becomes the bits 0xff.. (NaN), and the error, of any such
// place, comes from the next wait for the device.
void gather_rows(const GatherRows& args, StreamRef stream);
void scatter_rows(const ScatterRows& args, StreamRef stream);
void scatter_add_rows(const ScatterAddRows& args, StreamRef stream);
Cost cost(const GatherRows& args);
Cost cost(const ScatterRows& args);
Cost cost(const ScatterAddRows& args);

}  // namespace zinc::kernels
