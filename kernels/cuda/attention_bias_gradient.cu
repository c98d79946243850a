// The gradient of attention's bias, in f32: another pass over the scores, a block per 32 x 32 tile
// of it, over the batches and heads that it is broadcast to, in their order. Bytes moved: q and
// dout once per 32 keys, k and v once per 32 queries, dbias once.
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
  float* to = dbias + ((bias_batch * bias_heads + bias_head) * shape.Tq + first_row + r) * shape.Tk;
  for (int n = 0; n < kTileThreadScores; ++n) {
    const int64_t j = first_key + part + n * kRowThreads;
    if (j < shape.Tk) to[j] = sum[n];
  }
}

}  // namespace

void attention_bias_gradient(const AttentionProblem& p, const AttentionShape& shape,
                             const AttentionGradients& gradients, const float* delta,
                             StreamRef stream) {
  if (p.Tq == 0 || p.Tk == 0) return;
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
