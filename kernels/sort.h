// kernels/sort.h: the first k elements of every row in falling or rising order, and their indices.
// Equal elements keep their order; a NaN is larger than all; -0 is equal to 0.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Sort {
  ConstView x;  // [rows, cols] f64 | f32 | bf16 | f16, rows at one stride; cols < 2^31
  bool descending = true;
  View values;       // [rows, k] dtype of x, contiguous, overwrites; 0 <= k <= cols
  View indices;      // [rows, k] i64, contiguous, overwrites: the indices, columns of x
  View workspace{};  // u8, at least sort_workspace_bytes(rows, cols, device of x), aligned to 8
};

int64_t sort_workspace_bytes(int64_t rows, int64_t cols, DeviceKind device);

// Asynchronous on `stream`. Deterministic.
void sort(const Sort& args, StreamRef stream);
Cost cost(const Sort& args);

}  // namespace zinc::kernels
