// Flash attention in f32, backward (kernels/attention.h; Dao et al., algorithm 4): probabilities
// are computed again from lse. Two kernels, neither of which adds to what another block writes, so
// that every sum has one order: dq, a block per 32 queries of a head, over its keys; dk and dv, a
// block per 32 keys of a key head, over the queries of its heads. Bytes moved: q, dout, dq once and
// k, v once per 32 queries; k, v, dk, dv once and q, dout once per 32 keys.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_tile_backward.h"

namespace zinc::kernels::cuda {
namespace {

template <class T, int kStride>
__global__ void __launch_bounds__(kAttentionThreads) dq_kernel(BackwardArgs<T> args) {
  constexpr int kEach = (kStride - 1) / kRowThreads;
  const AttentionShape& shape = args.shape;
  float* q_tile = dynamic_shared<float>();
  float* dout_tile = q_tile + kTileRows * kStride;
  float* k_tile = dout_tile + kTileRows * kStride;
  float* v_tile = k_tile + kTileRows * kStride;
  float* dscores = v_tile + kTileRows * kStride;
  const int r = static_cast<int>(threadIdx.x) / kRowThreads;
  const int part = static_cast<int>(threadIdx.x) % kRowThreads;
  const int64_t b = blockIdx.z, h = blockIdx.y;
  const int64_t first_row = int64_t{blockIdx.x} * kTileRows;
  const int64_t g = h / (shape.H / shape.G);
  const Query query = query_of(args, b, h, first_row + r);
  load_tile<T, kStride>(q_tile, args.q, b, h, first_row, shape.Tq, shape.D, shape.aligned);
  load_tile<T, kStride>(dout_tile, args.dout, b, h, first_row, shape.Tq, shape.D, shape.aligned);
  float dq[kEach] = {};
  float* mine = dscores + r * kScoreStride;
  const Keys keys = shape.keys_by_position(b, first_row, first_row + kTileRows - 1);
  for (int64_t first = keys.begin / kTileRows * kTileRows; first < keys.end; first += kTileRows) {
    if (!shape.layout_shows_any(h, {first_row, first_row + kTileRows},
                                {first, first + kTileRows})) {
      continue;
    }
    const Keys seen = keys_in_tile(query.keys, first);
    if (__syncthreads_or(seen.begin < seen.end ? 1 : 0) == 0) continue;
    load_tile<T, kStride>(k_tile, args.k, b, g, first, shape.Tk, shape.D, shape.aligned);
    load_tile<T, kStride>(v_tile, args.v, b, g, first, shape.Tk, shape.D, shape.aligned);
    __syncthreads();
    for (int n = 0; n < kTileThreadScores; ++n) {
      const int c = part + n * kRowThreads;
      if (c < seen.begin || c >= seen.end) continue;
      mine[c] = 0.0f;
      if (!shape.layout_sees(h, query.i, first + c)) continue;
      mine[c] =
          pair_of<kStride>(shape, query, first + c, q_tile + r * kStride, k_tile + c * kStride,
                           v_tile + c * kStride, dout_tile + r * kStride)
              .dproduct;
    }
    __syncwarp();
    add_tile_rows<kStride>(dq, mine, k_tile, seen);
  }
  if (query.i >= shape.Tq) return;
  T* to = args.dq.at(b, query.i, h);
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int d = part + n * kRowThreads;
    if (d < shape.D) to[d] = T(shape.scale * dq[n]);
  }
}

template <class T, int kStride>
__global__ void __launch_bounds__(kAttentionThreads) dkv_kernel(BackwardArgs<T> args) {
  constexpr int kEach = (kStride - 1) / kRowThreads;
  const AttentionShape& shape = args.shape;
  float* k_tile = dynamic_shared<float>();
  float* v_tile = k_tile + kTileRows * kStride;
  float* q_tile = v_tile + kTileRows * kStride;
  float* dout_tile = q_tile + kTileRows * kStride;
  float* weights = dout_tile + kTileRows * kStride;
  float* dscores = weights + kTileRows * kScoreStride;
  const int r = static_cast<int>(threadIdx.x) / kRowThreads;  // row among the keys
  const int part = static_cast<int>(threadIdx.x) % kRowThreads;
  const int64_t b = blockIdx.z, g = blockIdx.y;
  const int64_t first_key = int64_t{blockIdx.x} * kTileRows;
  const int64_t j = first_key + r;
  const int64_t heads = shape.H / shape.G;
  load_tile<T, kStride>(k_tile, args.k, b, g, first_key, shape.Tk, shape.D, shape.aligned);
  load_tile<T, kStride>(v_tile, args.v, b, g, first_key, shape.Tk, shape.D, shape.aligned);
  float dk[kEach] = {}, dv[kEach] = {};
  float* my_weights = weights + r * kScoreStride;
  float* my_dscores = dscores + r * kScoreStride;
  const Keys queries = shape.queries_by_position(b, first_key, first_key + kTileRows - 1);
  const int64_t first_query = queries.begin / kTileRows * kTileRows;
  for (int64_t h = g * heads; h < (g + 1) * heads; ++h) {
    for (int64_t first = first_query; first < queries.end; first += kTileRows) {
      if (!shape.layout_shows_any(h, {first, first + kTileRows},
                                  {first_key, first_key + kTileRows})) {
        continue;
      }
      // Threads of a key look at different queries: bit n stands for query part + 4 n.
      unsigned seen = 0;
      for (int n = 0; n < kTileThreadScores; ++n) {
        const Query query = query_of(args, b, h, first + part + n * kRowThreads);
        if (j < query.keys.begin || j >= query.keys.end) continue;
        if (shape.layout_sees(h, query.i, j)) seen |= 1u << n;
      }
      if (__syncthreads_or(seen != 0 ? 1 : 0) == 0) continue;
      load_tile<T, kStride>(q_tile, args.q, b, h, first, shape.Tq, shape.D, shape.aligned);
      load_tile<T, kStride>(dout_tile, args.dout, b, h, first, shape.Tq, shape.D, shape.aligned);
      __syncthreads();
      for (int n = 0; n < kTileThreadScores; ++n) {
        const int c = part + n * kRowThreads;
        if ((seen >> n & 1u) == 0) continue;
        const Pair pair =
            pair_of<kStride>(shape, query_of(args, b, h, first + c), j, q_tile + c * kStride,
                             k_tile + r * kStride, v_tile + r * kStride, dout_tile + c * kStride);
        my_weights[c] = rounded<T>(pair.weight);
        my_dscores[c] = pair.dproduct;
      }
      // The queries of all four threads.
      unsigned all = 0;
#pragma unroll
      for (int from = 0; from < kRowThreads; ++from) {
        const unsigned theirs = __shfl_sync(kFullWarp, seen, from, kRowThreads);
        for (int n = 0; n < kTileThreadScores; ++n) {
          all |= (theirs >> n & 1u) << (from + n * kRowThreads);
        }
      }
      __syncwarp();
      for (int c = 0; c < kTileRows; ++c) {
        if ((all >> c & 1u) == 0) continue;
        const float weight = my_weights[c], dscore = my_dscores[c];
#pragma unroll
        for (int n = 0; n < kEach; ++n) {
          const int d = part + n * kRowThreads;
          dv[n] += weight * dout_tile[c * kStride + d];
          dk[n] += dscore * q_tile[c * kStride + d];
        }
      }
    }
  }
  if (j >= shape.Tk) return;
  T* dk_row = args.dk.at(b, j, g);
  T* dv_row = args.dv.at(b, j, g);
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int d = part + n * kRowThreads;
    if (d >= shape.D) continue;
    dk_row[d] = T(shape.scale * dk[n]);
    dv_row[d] = T(dv[n]);
  }
}

}  // namespace

void tile_attention_backward(const AttentionProblem& p, const AttentionShape& shape,
                             const AttentionGradients& gradients, const float* delta,
                             StreamRef stream) {
  const auto B = static_cast<unsigned>(p.B);
  const dim3 block(kAttentionThreads);
  dispatch_tile_attention(p, [&]<class T, int kStride>() {
    constexpr size_t kTile = kTileRows * kStride * sizeof(float);
    constexpr size_t kScores = kTileRows * kScoreStride * sizeof(float);
    const auto args = backward_args<T>(p, shape, gradients, delta);
    if (p.Tq > 0) {
      launch(dq_kernel<T, kStride>, dim3(tiles_of(p.Tq), static_cast<unsigned>(p.H), B), block,
             4 * kTile + kScores, stream, args);
    }
    if (p.Tk > 0) {
      launch(dkv_kernel<T, kStride>, dim3(tiles_of(p.Tk), static_cast<unsigned>(p.G), B), block,
             4 * kTile + 2 * kScores, stream, args);
    }
  });
}

}  // namespace zinc::kernels::cuda
