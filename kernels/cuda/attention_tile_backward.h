// kernels/cuda/attention_tile_backward.h: gradients of one score, in f32.
#pragma once

#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_tile.h"

namespace zinc::kernels::cuda {

inline constexpr int kTileThreadScores = kTileRows / kRowThreads;

// The values of one pair of query and key: the probability that met v, and the gradients of the
// score and of the scaled product.
struct Pair {
  float weight, dscore, dproduct;
};

template <int kStride>
__device__ __forceinline__ Pair pair_of(const AttentionShape& shape, const Query& query, int64_t j,
                                        const float* q, const float* k, const float* v,
                                        const float* dout) {
  const Score s = shape.score(query.b, query.h, query.i, j, dot_rows<kStride>(q, k));
  const float weight = expf(s.value - query.lse);
  const float kept = shape.kept(query.b, query.h, query.i, j);
  const float dweight = kept * dot_rows<kStride>(dout, v);
  const float dscore = weight * (dweight - query.delta);
  return {weight * kept, dscore, s.slope * dscore};
}

}  // namespace zinc::kernels::cuda
