// kernels/flat_index.h: where the elements of a gather along one dimension lie.
// flat[o, n, i] = (o * extent + index[o, n, i]) * inner + i
//
// With x seen as [outer, extent, inner], element flat[o, n, i] of x is x[o, index[o, n, i], i]:
// gather_rows and scatter_add_rows over rows of one element then gather along any dimension.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct FlatIndex {
  ConstView index;     // [outer, n, inner] i32 | i64, contiguous; or [n], the same for every outer;
                       // inner is then 1
  int64_t extent = 0;  // extent of the indexed dimension
  View flat;           // [outer, n, inner] i64, contiguous, overwrites
  const char* op = "flat_index";  // a string literal that begins the error's message
};

// Asynchronous on `stream`. An index outside [0, extent) is an InvalidArgument from the stream that
// names the first such place; on a GPU that element becomes -1, and the error, of any such place,
// comes from the next wait for the device.
void flat_index(const FlatIndex& args, StreamRef stream);
Cost cost(const FlatIndex& args);

}  // namespace zinc::kernels
