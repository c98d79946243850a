// kernels/decode.h: weights in 4 or 8 bits and states in 8 to floats: core/block_format.h.
// y[i] = code[x[i]] * absmax, or scale, of its block
#pragma once

#include "core/block_format.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

struct Decode {
  ConstView x;  // [encoded_bytes(n)] u8, contiguous, aligned to 8: whole chunks
  BlockFormat format = BlockFormat::nf4;
  View y;  // [n] f64 | f32 | bf16 | f16, contiguous, overwrites
};

// Asynchronous on `stream`. The product is made in f32 and rounded once to y. Deterministic, the
// same bits on every device.
void decode(const Decode& args, StreamRef stream);
// Decodes in host memory, at once, on any thread.
void decode_on_host(const Decode& args);
Cost cost(const Decode& args);

}  // namespace zinc::kernels
