// kernels/dropout.h: inverted dropout (Srivastava et al., JMLR 2014, section 10).
// y[i] = x[i] * scale where kept, else 0; scale = 1 / (1 - p), computed in f64.
// Element i (row-major) is kept where key.uniform(first_element + i) >= p, compared in f32: the
// mask is never stored, and the backward pass is the same call on dy with the same key.
#pragma once

#include "core/philox.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Dropout {
  ConstView x;   // any shape, f64 | f32 | bf16 | f16, contiguous
  View y;        // shape and dtype of x, contiguous, overwrites; may be x itself
  double p = 0;  // probability of a zero, in [0, 1]; 0 copies, 1 writes zeros
  RandomKey key;
  int64_t first_element = 0;  // place of x[0] in the stream of random numbers
  // [1] i64 on a GPU, may be absent: takes the place of key.counter_high, for work that is recorded
  // and launched again.
  ConstView counter{};
};

// y[i] = residual[i] + dropout(x)[i], rounded once.
struct DropoutResidual {
  ConstView x;         // any shape, f64 | f32 | bf16 | f16, contiguous
  ConstView residual;  // shape and dtype of x, contiguous
  View y;              // shape and dtype of x, contiguous, overwrites; may be x or residual itself
  double p = 0;        // as in the forward pass above
  RandomKey key;
  int64_t first_element = 0;
  ConstView counter{};  // [1] i64
};

// Asynchronous on `stream`. Deterministic: bits depend on key and element alone. A dropped element
// is +0, whatever x is there (also NaN).
void dropout(const Dropout& args, StreamRef stream);
void dropout_residual(const DropoutResidual& args, StreamRef stream);
Cost cost(const Dropout& args);
Cost cost(const DropoutResidual& args);

}  // namespace zinc::kernels
