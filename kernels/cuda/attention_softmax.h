// kernels/cuda/attention_softmax.h: the running softmax of the rows of a warp, whose scores and
// sums are fragments as in kernels/cuda/attention_mma.h (Dao, 2023, "FlashAttention-2", algorithm
// 1).
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_mma.h"

namespace zinc::kernels::cuda {

template <int kRowTiles>
struct Softmax {
  float max[kRowTiles][2];  // maximum of the scores so far
  float sum[kRowTiles][2];  // sum over this lane's columns

  __device__ __forceinline__ Softmax() {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      max[r / 2][r % 2] = -INFINITY;
      sum[r / 2][r % 2] = 0.0f;
    }
  }
  // Scores become 2^(factor (score - maximum)); `shrink` receives the factors by which the earlier
  // sums shrink.
  template <int kKeys>
  __device__ __forceinline__ void weigh(Fragments<kRowTiles, kKeys>& scores, float factor,
                                        float (&shrink)[kRowTiles][2]) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float larger = max[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          larger = fmaxf(larger, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
        }
        larger = warp_reduce<kRowLanes>(larger, [](float a, float b) { return fmaxf(a, b); });
        const float base = larger == -INFINITY ? 0.0f : larger * factor;
        shrink[m][half] = fast_exp2(max[m][half] * factor - base);
        max[m][half] = larger;
        float total = sum[m][half] * shrink[m][half];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[m][n][e] = fast_exp2(fmaf(scores[m][n][e], factor, -base));
            total += scores[m][n][e];
          }
        }
        sum[m][half] = total;
      }
    }
  }
  // Gives the factors that finish the outputs, and writes lse of the warp's rows of (b, h), from
  // `first_row` on, where lse is wanted.
  __device__ __forceinline__ void finish(float (&scale)[kRowTiles][2], float factor, float* lse,
                                         const AttentionShape& shape, int64_t b, int64_t h,
                                         int64_t first_row) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float all = warp_reduce<kRowLanes>(sum[m][half], Add{});
        scale[m][half] = all == 0.0f ? 0.0f : 1.0f / all;
        const int64_t i = first_row + m * 16 + half * 8 + lane / kRowLanes;
        if (lse == nullptr || lane % kRowLanes != 0 || i >= shape.Tq) continue;
        lse[(b * shape.H + h) * shape.Tq + i] =
            all == 0.0f ? -INFINITY : max[m][half] * (factor * kLn2) + logf(all);
      }
    }
  }
};

template <int kRowTiles, int kOut>
__device__ __forceinline__ void shrink_rows(Fragments<kRowTiles, kOut>& out,
                                            const float (&shrink)[kRowTiles][2]) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kOut / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[m][n][e] *= shrink[m][e / 2];
    }
  }
}

// Scores that a row does not see become minus infinity. `first`: the first key of the tile.
template <int kRowTiles, int kKeys>
__device__ __forceinline__ void hide_scores(Fragments<kRowTiles, kKeys>& scores,
                                            const RowKeys<kRowTiles>& row_keys, int first) {
  if (row_keys.all_see(first, kKeys)) return;
  for_each_score<kRowTiles, kKeys>([&](int m, int n, int e, int, int column) {
    float& score = scores[m][n][e];
    const bool seen = row_keys.sees(m, e / 2, first + column);
    score = seen ? score : -INFINITY;
  });
}

}  // namespace zinc::kernels::cuda
