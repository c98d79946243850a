// The gradient of attention's bias, in f32: another pass over the scores, over the batches and
// heads that it is broadcast to, in their order: a block per 32 x 32 tile of it, or per 32
// distances. Bytes moved: q and dout once per 32 keys, k and v once per 32 queries (twice by
// distance), dbias once.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_tile_backward.h"

namespace zinc::kernels::cuda {
namespace {

// A thread owns a row and every fourth key of a tile of dbias.
template <class T, int kStride>
__global__ void __launch_bounds__(kAttentionThreads)
    dbias_kernel(BackwardArgs<T> args, float* dbias, int64_t bias_batches, int64_t bias_heads) {
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
  const int64_t batches = shape.B / bias_batches, heads = shape.H / bias_heads;
  float sum[kTileThreadScores] = {};
  for (int64_t b = bias_batch * batches; b < (bias_batch + 1) * batches; ++b) {
    for (int64_t h = bias_head * heads; h < (bias_head + 1) * heads; ++h) {
      if (!shape.layout_shows_any(h, {first_row, first_row + kTileRows},
                                  {first_key, first_key + kTileRows})) {
        continue;
      }
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
        if (!shape.layout_sees(h, query.i, j)) continue;
        sum[n] += pair_of<kStride>(shape, query, j, q_tile + r * kStride, k_tile + c * kStride,
                                   v_tile + c * kStride, dout_tile + r * kStride)
                      .dscore;
      }
    }
  }
  if (first_row + r >= shape.Tq) return;
  float* to = dbias + ((bias_batch * bias_heads + bias_head) * shape.Tq + first_row + r) * shape.Tk;
  for (int n = 0; n < kTileThreadScores; ++n) {
    const int64_t j = first_key + part + n * kRowThreads;
    if (j < shape.Tk) to[j] = sum[n];
  }
}

// Note [Bias by distance]: a thread owns a row of every tile of 32 queries and every fourth of 32
// distances, which with 63 keys make a band of scores; the rows' sums meet in shared memory.
template <class T, int kStride>
__global__ void __launch_bounds__(kAttentionThreads)
    distance_bias_kernel(BackwardArgs<T> args, float* dbias, int64_t bias_heads) {
  const AttentionShape& shape = args.shape;
  float* q_tile = dynamic_shared<float>();
  float* dout_tile = q_tile + kTileRows * kStride;
  float* k_tiles = dout_tile + kTileRows * kStride;  // two
  float* v_tiles = k_tiles + 2 * kTileRows * kStride;
  const int r = static_cast<int>(threadIdx.x) / kRowThreads;
  const int part = static_cast<int>(threadIdx.x) % kRowThreads;
  const int64_t distances = shape.Tq + shape.Tk - 1;
  const int64_t first_distance = int64_t{blockIdx.x} * kTileRows;
  const int64_t bias_head = blockIdx.y, heads = shape.H / bias_heads;
  // The key that row 0 meets at the first distance.
  const int64_t shift = first_distance - (shape.Tq - 1);
  const int64_t first_query = max_of(0, 1 - kTileRows - shift) / kTileRows * kTileRows;
  const int64_t end_query = min_of(shape.Tq, shape.Tk - shift);
  float sum[kTileThreadScores] = {};
  for (int64_t b = 0; b < shape.B; ++b) {
    for (int64_t h = bias_head * heads; h < (bias_head + 1) * heads; ++h) {
      const int64_t g = h / (shape.H / shape.G);
      for (int64_t first_row = first_query; first_row < end_query; first_row += kTileRows) {
        const Query query = query_of(args, b, h, first_row + r);
        const int64_t first_key = first_row + shift;
        if (!shape.layout_shows_any(h, {first_row, first_row + kTileRows},
                                    {max_of(first_key, 0), first_key + 2 * kTileRows - 1})) {
          continue;
        }
        const bool sees = query.keys.begin < query.keys.end &&
                          query.keys.begin < first_key + r + kTileRows &&
                          query.keys.end > first_key + r;
        if (__syncthreads_or(sees ? 1 : 0) == 0) continue;
        load_tile<T, kStride>(q_tile, args.q, b, h, first_row, shape.Tq, shape.D, shape.aligned);
        load_tile<T, kStride>(dout_tile, args.dout, b, h, first_row, shape.Tq, shape.D,
                              shape.aligned);
        for (int half = 0; half < 2; ++half) {
          const int64_t key = first_key + half * kTileRows;
          const int at = half * kTileRows * kStride;
          load_tile<T, kStride>(k_tiles + at, args.k, b, g, key, shape.Tk, shape.D, shape.aligned);
          load_tile<T, kStride>(v_tiles + at, args.v, b, g, key, shape.Tk, shape.D, shape.aligned);
        }
        __syncthreads();
        for (int n = 0; n < kTileThreadScores; ++n) {
          const int c = r + part + n * kRowThreads;
          const int64_t j = first_key + c;
          if (j < query.keys.begin || j >= query.keys.end) continue;
          if (!shape.layout_sees(h, query.i, j)) continue;
          sum[n] += pair_of<kStride>(shape, query, j, q_tile + r * kStride, k_tiles + c * kStride,
                                     v_tiles + c * kStride, dout_tile + r * kStride)
                        .dscore;
        }
      }
    }
  }
  __syncthreads();
  for (int n = 0; n < kTileThreadScores; ++n) {
    q_tile[r * kScoreStride + part + n * kRowThreads] = sum[n];
  }
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c >= kTileRows || first_distance + c >= distances) return;
  float total = 0.0f;
  for (int row = 0; row < kTileRows; ++row) total += q_tile[row * kScoreStride + c];
  dbias[bias_head * distances + first_distance + c] = total;
}

}  // namespace

void attention_bias_gradient(const AttentionProblem& p, const AttentionShape& shape,
                             const AttentionGradients& gradients, const float* delta,
                             StreamRef stream) {
  if (gradients.dbias.numel() == 0) return;
  if (p.has_bias_by_distance()) {
    const int64_t bias_heads = gradients.dbias.dim(0);
    dispatch_tile_attention(p, [&]<class T, int kStride>() {
      launch(distance_bias_kernel<T, kStride>,
             dim3(tiles_of(p.Tq + p.Tk - 1), static_cast<unsigned>(bias_heads)),
             dim3(kAttentionThreads), 6 * kTileRows * kStride * sizeof(float), stream,
             backward_args<T>(p, shape, gradients, delta), gradients.dbias.data_as<float>(),
             bias_heads);
    });
    return;
  }
  const int64_t batches = gradients.dbias.dim(0), heads = gradients.dbias.dim(1);
  const dim3 grid(tiles_of(p.Tq) * tiles_of(p.Tk), static_cast<unsigned>(heads),
                  static_cast<unsigned>(batches));
  dispatch_tile_attention(p, [&]<class T, int kStride>() {
    launch(dbias_kernel<T, kStride>, grid, dim3(kAttentionThreads),
           4 * kTileRows * kStride * sizeof(float), stream,
           backward_args<T>(p, shape, gradients, delta), gradients.dbias.template data_as<float>(),
           batches, heads);
  });
}

}  // namespace zinc::kernels::cuda
