// kernels/cuda/attention_tile_backward.h: gradients of one score, in f32.
#pragma once

#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_tile.h"

namespace zinc::kernels::cuda {

inline constexpr int kTileThreadScores = kTileRows / kRowThreads;

// Of one pair: the probability that met v, and the gradient of the score.
struct Pair {
  float weight, dscore;
};

template <int kStride>
__device__ __forceinline__ Pair pair_of(const AttentionShape& shape, const Query& query, int64_t j,
                                        const float* q, const float* k, const float* v,
                                        const float* dout) {
  const float s = shape.score(query.b, query.h, query.i, j, dot_rows<kStride>(q, k));
  const float weight = expf(s - query.lse);
  const float kept = shape.kept(query.b, query.h, query.i, j);
  const float dweight = kept * dot_rows<kStride>(dout, v);
  return {weight * kept, weight * (dweight - query.delta)};
}

}  // namespace zinc::kernels::cuda
