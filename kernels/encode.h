// kernels/encode.h: encodes floats as weights in 4 or 8 bits, or as states in 8 bits
// (core/block_format.h). It runs on the host alone: a weight is encoded once, and so are the states
// of a checkpoint. Updates encode the states that they change: element_update.h.
#pragma once

#include <span>
#include <vector>

#include "core/block_format.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// The figures that the chunks of a weight in nf4 share.
struct NestedAbsmax {
  float offset = 0.0f;
  std::vector<float> absmax;  // per kNestedNumel elements
};

// The largest magnitude of each block of x to `absmax`, one per block, the last one perhaps
// shorter. x: [n] contiguous host memory of any float dtype. False where a value is NaN or
// infinite. Synchronous, on the caller's threads; as the next three.
bool block_absmax(BlockFormat format, const ConstView& x, std::span<float> absmax);
// `absmax`: of all blocks of a weight in nf4, in order. The mean is computed in f64.
NestedAbsmax nest(std::span<const float> absmax);

struct Encode {
  ConstView x;  // [n] contiguous host memory, any float dtype
  BlockFormat format = BlockFormat::nf4;
  int64_t begin = 0;  // first element of x in its weight: a multiple of kFormatChunk
  const NestedAbsmax* nested = nullptr;  // of the whole weight; nf4 only
  View y;  // [encoded_bytes(n)] u8, host memory aligned to 8, overwrites
};
// Deterministic. Weights have no NaN and no infinities.
void encode(const Encode& args);
Cost cost(const Encode& args);

}  // namespace zinc::kernels
