// Flash attention, backward (kernels/attention.h; Dao et al., algorithm 4): probabilities are
// computed again from lse. Three kernels, none of which adds to what another block writes, so that
// every sum has one order: <dout, out> per query; dq, a block per 32 queries of a head, over its
// keys; dk and dv, a block per 32 keys of a key head, over the queries of its heads. dbias is
// another pass over the scores, a block per tile of it, over what it is broadcast to. Bytes moved:
// q, dout, dq once and k, v once per 32 queries; k, v, dk, dv once and q, dout once per 32 keys.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kTileThreadScores = kTileRows / kRowThreads;

template <class T>
struct BackwardArgs {
  AttentionShape shape;
  HeadRows<const T> q, k, v, out, dout;
  HeadRows<T> dq, dk, dv;
  const float* lse;
  float* delta;  // [B, H, Tq]
  float* dbias;  // [bias batches, bias heads, Tq, Tk]
  int64_t bias_batches, bias_heads;
};

// A warp per query.
template <class T>
__global__ void __launch_bounds__(kAttentionThreads) delta_kernel(BackwardArgs<T> args) {
  const AttentionShape& shape = args.shape;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i =
      int64_t{blockIdx.x} * (kAttentionThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t h = blockIdx.y, b = blockIdx.z;
  float sum = 0.0f;
  if (i < shape.Tq) {
    const T* dout = args.dout.at(b, i, h);
    const T* out = args.out.at(b, i, h);
    for (int64_t d = lane; d < shape.D; d += kWarp) {
      sum += static_cast<float>(dout[d]) * static_cast<float>(out[d]);
    }
  }
  sum = warp_sum(sum);
  if (i < shape.Tq && lane == 0) args.delta[(b * shape.H + h) * shape.Tq + i] = sum;
}

struct Query {
  int64_t b, h, i;
  Keys keys;  // none where the query sees nothing
  float lse, delta;
};

template <class T>
__device__ __forceinline__ Query query_of(const BackwardArgs<T>& args, int64_t b, int64_t h,
                                          int64_t i) {
  Query query{b, h, i, {0, 0}, 0.0f, 0.0f};
  if (i >= args.shape.Tq) return query;
  const int64_t at = (b * args.shape.H + h) * args.shape.Tq + i;
  query.lse = args.lse[at];
  query.delta = args.delta[at];
  if (query.lse != -INFINITY) query.keys = args.shape.keys_of(b, i);
  return query;
}

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
  for (int64_t first = 0; first < shape.Tk; first += kTileRows) {
    const int64_t begin = query.keys.begin > first ? query.keys.begin - first : 0;
    const int64_t end = query.keys.end - first < kTileRows ? query.keys.end - first : kTileRows;
    if (__syncthreads_or(begin < end ? 1 : 0) == 0) continue;
    load_tile<T, kStride>(k_tile, args.k, b, g, first, shape.Tk, shape.D, shape.aligned);
    load_tile<T, kStride>(v_tile, args.v, b, g, first, shape.Tk, shape.D, shape.aligned);
    __syncthreads();
    for (int n = 0; n < kTileThreadScores; ++n) {
      const int c = part + n * kRowThreads;
      if (c < begin || c >= end) continue;
      mine[c] =
          pair_of<kStride>(shape, query, first + c, q_tile + r * kStride, k_tile + c * kStride,
                           v_tile + c * kStride, dout_tile + r * kStride)
              .dscore;
    }
    __syncwarp();
    for (int64_t c = begin; c < end; ++c) {
      const float dscore = mine[c];
#pragma unroll
      for (int n = 0; n < kEach; ++n) {
        dq[n] += dscore * k_tile[c * kStride + part + n * kRowThreads];
      }
    }
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
  const int r = static_cast<int>(threadIdx.x) / kRowThreads;  // of the keys
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
  for (int64_t h = g * heads; h < (g + 1) * heads; ++h) {
    for (int64_t first = 0; first < shape.Tq; first += kTileRows) {
      // Threads of a key look at different queries: bit n stands for query part + 4 n.
      unsigned seen = 0;
      for (int n = 0; n < kTileThreadScores; ++n) {
        const Query query = query_of(args, b, h, first + part + n * kRowThreads);
        if (j >= query.keys.begin && j < query.keys.end) seen |= 1u << n;
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
        my_dscores[c] = pair.dscore;
      }
      // Of the queries of all four threads.
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

// A thread owns a row and every fourth key of a tile of dbias.
template <class T, int kStride>
__global__ void __launch_bounds__(kAttentionThreads) dbias_kernel(BackwardArgs<T> args) {
  const AttentionShape& shape = args.shape;
  float* q_tile = dynamic_shared<float>();
  float* dout_tile = q_tile + kTileRows * kStride;
  float* k_tile = dout_tile + kTileRows * kStride;
  float* v_tile = k_tile + kTileRows * kStride;
  const int r = static_cast<int>(threadIdx.x) / kRowThreads;
  const int part = static_cast<int>(threadIdx.x) % kRowThreads;
  const int64_t tiles_k = (shape.Tk + kTileRows - 1) / kTileRows;
  const int64_t first_row = int64_t{blockIdx.x} / tiles_k * kTileRows;
  const int64_t first_key = int64_t{blockIdx.x} % tiles_k * kTileRows;
  const int64_t bias_batch = blockIdx.z, bias_head = blockIdx.y;
  const int64_t batches = shape.B / args.bias_batches, heads = shape.H / args.bias_heads;
  float sum[kTileThreadScores] = {};
  for (int64_t b = bias_batch * batches; b < (bias_batch + 1) * batches; ++b) {
    for (int64_t h = bias_head * heads; h < (bias_head + 1) * heads; ++h) {
      const int64_t g = h / (shape.H / shape.G);
      const Query query = query_of(args, b, h, first_row + r);
      __syncthreads();
      load_tile<T, kStride>(q_tile, args.q, b, h, first_row, shape.Tq, shape.D, shape.aligned);
      load_tile<T, kStride>(dout_tile, args.dout, b, h, first_row, shape.Tq, shape.D,
                            shape.aligned);
      load_tile<T, kStride>(k_tile, args.k, b, g, first_key, shape.Tk, shape.D, shape.aligned);
      load_tile<T, kStride>(v_tile, args.v, b, g, first_key, shape.Tk, shape.D, shape.aligned);
      __syncthreads();
      for (int n = 0; n < kTileThreadScores; ++n) {
        const int c = part + n * kRowThreads;
        const int64_t j = first_key + c;
        if (j < query.keys.begin || j >= query.keys.end) continue;
        sum[n] += pair_of<kStride>(shape, query, j, q_tile + r * kStride, k_tile + c * kStride,
                                   v_tile + c * kStride, dout_tile + r * kStride)
                      .dscore;
      }
    }
  }
  if (first_row + r >= shape.Tq) return;
  float* to = args.dbias +
              ((bias_batch * args.bias_heads + bias_head) * shape.Tq + first_row + r) * shape.Tk;
  for (int n = 0; n < kTileThreadScores; ++n) {
    const int64_t j = first_key + part + n * kRowThreads;
    if (j < shape.Tk) to[j] = sum[n];
  }
}

}  // namespace

void run_attention_backward(const AttentionProblem& p, const AttentionGradients& gradients,
                            float* workspace, StreamRef stream) {
  constexpr auto kOp = "attention_backward";
  AttentionShape shape = attention_shape(kOp, p);
  shape.aligned = shape.aligned && can_read_packs(gradients.dout, p.dtype);
  const auto B = static_cast<unsigned>(p.B), H = static_cast<unsigned>(p.H);
  const dim3 block(kAttentionThreads);
  dispatch_attention(kOp, p, [&]<class T, int kStride>() {
    constexpr size_t kTile = kTileRows * kStride * sizeof(float);
    constexpr size_t kScores = kTileRows * kScoreStride * sizeof(float);
    BackwardArgs<T> args{.shape = shape,
                         .q = rows_of<T>(p.q),
                         .k = rows_of<T>(p.k),
                         .v = rows_of<T>(p.v),
                         .out = rows_of<T>(gradients.out),
                         .dout = rows_of<T>(gradients.dout),
                         .dq = written_rows_of<T>(gradients.dq),
                         .dk = written_rows_of<T>(gradients.dk),
                         .dv = written_rows_of<T>(gradients.dv),
                         .lse = static_cast<const float*>(gradients.lse),
                         .delta = workspace,
                         .dbias = nullptr,
                         .bias_batches = 1,
                         .bias_heads = 1};
    if (p.Tq > 0) {
      constexpr int64_t kRowsPerBlock = kAttentionThreads / kWarp;
      const auto rows = static_cast<unsigned>((p.Tq + kRowsPerBlock - 1) / kRowsPerBlock);
      launch(delta_kernel<T>, dim3(rows, H, B), block, 0, stream, args);
      launch(dq_kernel<T, kStride>, dim3(tiles_of(p.Tq), H, B), block, 4 * kTile + kScores, stream,
             args);
    }
    if (p.Tk > 0) {
      launch(dkv_kernel<T, kStride>, dim3(tiles_of(p.Tk), static_cast<unsigned>(p.G), B), block,
             4 * kTile + 2 * kScores, stream, args);
    }
    if (gradients.dbias && p.Tq > 0 && p.Tk > 0) {
      args.dbias = gradients.dbias.template data_as<float>();
      args.bias_batches = gradients.dbias.dim(0);
      args.bias_heads = gradients.dbias.dim(1);
      launch(dbias_kernel<T, kStride>,
             dim3(tiles_of(p.Tq) * tiles_of(p.Tk), static_cast<unsigned>(args.bias_heads),
                  static_cast<unsigned>(args.bias_batches)),
             block, 4 * kTile, stream, args);
    }
  });
}

}  // namespace zinc::kernels::cuda
