// Flash attention on tensor cores, forward, bf16 and f16 (kernels/attention.h; Dao, 2023,
// "FlashAttention-2", algorithm 1). A block takes 128 queries of one head (64 from head size 129
// on), a warp 32 of them, and walks over the keys that one of them sees, 64 at a time (32), with a
// running maximum and sum per row. Scores, softmax and sums in f32; probabilities are rounded
// before they meet v. A tile that nobody of a warp sees changes no bit. Values of keys that a query
// does not see are multiplied by 0: a NaN among the values of a tile reaches all its queries. Bytes
// moved: q and out once, k and v once per 128 queries of a head.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_mma.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
struct ForwardArgs {
  AttentionShape shape;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  float* lse;
  bool aligned;  // out
};

template <int kD>
inline constexpr int kRowTilesOf = kD <= 128 ? 2 : 1;
template <int kD>
inline constexpr int kKeysOf = kD <= 128 ? 64 : 32;

template <int kRowTiles>
struct Softmax {
  float max[kRowTiles][2];  // of the scores so far
  float sum[kRowTiles][2];  // of this lane's columns

  __device__ __forceinline__ Softmax() {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      max[r / 2][r % 2] = -INFINITY;
      sum[r / 2][r % 2] = 0.0f;
    }
  }
  // Scores become 2^(factor (score - maximum)), `out` and the sums shrink to the new maximum.
  template <int kKeys, int kOut>
  __device__ __forceinline__ void weigh(Fragments<kRowTiles, kKeys>& scores,
                                        Fragments<kRowTiles, kOut>& out, float factor) {
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
        const float shrink = fast_exp2(max[m][half] * factor - base);
        max[m][half] = larger;
        float total = sum[m][half] * shrink;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[m][n][e] = fast_exp2(fmaf(scores[m][n][e], factor, -base));
            total += scores[m][n][e];
          }
        }
        sum[m][half] = total;
#pragma unroll
        for (int n = 0; n < kOut / 8; ++n) {
          out[m][n][2 * half] *= shrink;
          out[m][n][2 * half + 1] *= shrink;
        }
      }
    }
  }
};

template <class T, int kD, bool kPlain>
__global__ void __launch_bounds__(kMmaThreads) forward_kernel(ForwardArgs<T> args) {
  constexpr int kRowTiles = kRowTilesOf<kD>, kKeys = kKeysOf<kD>, kRows = kOwnRows<kRowTiles>;
  const AttentionShape& shape = args.shape;
  T* q_tile = dynamic_shared<T>();
  T* stages = q_tile + kRows * kD;  // of each: keys, values
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / (shape.H / shape.G);
  // The longest rows of a causal mask begin first.
  const int64_t first_row = int64_t{gridDim.x - 1 - blockIdx.x} * kRows;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kRowTiles;
  const RowKeys<kRowTiles> row_keys(shape, b, first_row + warp_row);
  const Keys keys = keys_of_rows(shape, b, first_row, kRows);
  const auto copy_keys = [&](int64_t first, int stage) {
    T* tile = stages + stage * 2 * kKeys * kD;
    copy_rows_async<kD, kKeys>(tile, args.k, b, g, first, keys, shape.D);
    copy_rows_async<kD, kKeys>(tile + kKeys * kD, args.v, b, g, first, keys, shape.D);
    commit_copies();
  };
  copy_rows_async<kD, kRows>(q_tile, args.q, b, h, first_row, Keys{0, shape.Tq}, shape.D);
  int64_t first = keys.begin / kKeys * kKeys;
  copy_keys(first, 0);
  T* own = q_tile + warp_row * kD;
  const float factor = score_factor<kPlain>(shape);
  Softmax<kRowTiles> softmax;
  Fragments<kRowTiles, kD> out = {};
  for (int stage = 0; first < keys.end; first += kKeys, stage ^= 1) {
    wait_copies<0>();
    __syncthreads();  // nor does anybody use the other stage any more
    if (first + kKeys < keys.end) copy_keys(first + kKeys, stage ^ 1);
    if (!row_keys.any_sees(static_cast<int>(first), kKeys)) continue;
    const T* k_tile = stages + stage * 2 * kKeys * kD;
    Fragments<kRowTiles, kKeys> scores;
    multiply_rows<kD, kRowTiles, kKeys>(scores, own, k_tile);
    const bool all = row_keys.all_see(static_cast<int>(first), kKeys);
    if constexpr (!kPlain) {
      finish_scores<kRowTiles, kKeys>(
          scores, shape, b, h,
          [&](int row, int column) {
            return QueryAndKey{first_row + warp_row + row, first + column};
          },
          [](int, int, int, int, float) {});
    }
    if (!all) {
      for_each_score<kRowTiles, kKeys>([&](int m, int n, int e, int, int column) {
        float& score = scores[m][n][e];
        const bool seen = row_keys.sees(m, e / 2, static_cast<int>(first) + column);
        score = seen ? score : -INFINITY;
      });
    }
    softmax.template weigh<kKeys, kD>(scores, out, factor);
    if constexpr (!kPlain) {
      const KeptScores<kRowTiles, kKeys> kept(shape.dropout != 0.0f, [&](int row, int column) {
        return shape.kept(b, h, first_row + warp_row + row, first + column);
      });
      for_each_score<kRowTiles, kKeys>([&](int m, int n, int e, int, int) {
        scores[m][n][e] *= kept.at(m, n, e) ? shape.keep_factor : 0.0f;
      });
    }
    Weights<kRowTiles, kKeys> weights;
    round_to<T, kRowTiles, kKeys>(weights, scores);
    add_weighted_rows<kD, kD, kRowTiles, kKeys>(out, weights, k_tile + kKeys * kD);
  }
  wait_copies<0>();  // where there is no key, of the first tile
  float scale[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = warp_reduce<kRowLanes>(softmax.sum[m][half], Add{});
      scale[m][half] = sum == 0.0f ? 0.0f : 1.0f / sum;
      const int lane = static_cast<int>(threadIdx.x) % kWarp;
      const int64_t i = first_row + warp_row + m * 16 + half * 8 + lane / kRowLanes;
      if (args.lse == nullptr || lane % kRowLanes != 0 || i >= shape.Tq) continue;
      args.lse[(b * shape.H + h) * shape.Tq + i] =
          sum == 0.0f ? -INFINITY : softmax.max[m][half] * (factor * kLn2) + logf(sum);
    }
  }
  __syncthreads();
  store_rows<kD, kD, kRowTiles>(own, out, scale, args.out, b, h, first_row + warp_row, shape.Tq,
                                shape.D, args.aligned);
}

}  // namespace

void mma_attention_forward(const AttentionProblem& p, const AttentionShape& shape,
                           const HeadsView& out, float* lse, StreamRef stream) {
  dispatch_mma(p, shape, [&]<class T, int kD, bool kPlain>() {
    constexpr int kRows = kOwnRows<kRowTilesOf<kD>>;
    const dim3 grid(blocks_of(p.Tq, kRows), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B));
    constexpr size_t kShared = (kRows + 4 * kKeysOf<kD>)*kD * sizeof(T);
    launch(forward_kernel<T, kD, kPlain>, grid, dim3(kMmaThreads), kShared, stream,
           ForwardArgs<T>{shape, rows_of<T>(p.q), rows_of<T>(p.k), rows_of<T>(p.v),
                          written_rows_of<T>(out), lse, can_read_packs(out, p.dtype)});
  });
}

}  // namespace zinc::kernels::cuda
