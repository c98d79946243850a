// kernels/cuda/row_order.h: adds rows that share an id, in the order of their places, for
// embedding_backward and scatter_add_rows.
#pragma once

#include "core/stream.h"
#include "core/view.h"

namespace zinc::kernels::cuda {

struct RowAdding {
  const char* op;
  ConstView ids;  // [N]
  ConstView x;    // a row of `cols` elements for each id
  View y;         // dtype of x or f32; rows are added to, or overwritten where they are named
  int64_t rows;   // of y
  int64_t cols;
  int64_t x_stride, y_stride;  // elements from row to row
  bool accumulate;
  int64_t ignored_id;
  bool allows_absent = false;  // kAbsentRow is no fault
  View workspace;              // row_order_workspace_bytes(N)
};

// Ids outside [0, rows) and the ignored one add nothing.
void add_rows(const RowAdding& args, StreamRef stream);

}  // namespace zinc::kernels::cuda
