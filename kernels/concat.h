// kernels/concat.h: tensors side by side along one dimension, and back.
#pragma once

#include <span>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// The extents of the parts along `dim` add up to that of the whole; all other extents and the dtype
// agree. Any dtype; outer strides are free; no part may overlap the whole.
struct Concat {
  std::span<const ConstView> parts;  // read at the call; their bytes are read on the stream
  int dim = 0;                       // negative counts from the end
  View whole;                        // overwrites
};

struct Split {
  ConstView whole;
  int dim = 0;                  // negative counts from the end
  std::span<const View> parts;  // read at the call; overwritten on the stream
};

// Asynchronous on `stream`. Each is the gradient of the other.
void concat(const Concat& args, StreamRef stream);
void split(const Split& args, StreamRef stream);
Cost cost(const Concat& args);
Cost cost(const Split& args);

}  // namespace zinc::kernels
