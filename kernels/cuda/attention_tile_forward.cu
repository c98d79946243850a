// Flash attention in f32, forward (kernels/attention.h). A block takes 32 queries of one head and
// walks over the keys they may see, 32 at a time, with a running maximum and sum per row (Dao et
// al., algorithm 1). Sums in f32, in the order of the keys: bits depend on the shape and the values
// alone; tiles that no query sees change no bit. Bytes moved: q and out once, k and v once per 32
// queries of a head.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_tile.h"

namespace zinc::kernels::cuda {
namespace {

template <class T>
struct ForwardArgs {
  AttentionShape shape;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  float* lse;
};

// The state of a thread's row.
struct RowState {
  int64_t b, h, i;
  Keys keys;
  float max = -INFINITY;
  float sum = 0.0f;
};

// Weights of one tile of keys, exp(s - max), into `weights` (this thread's of its row), and the
// factor by which earlier sums shrink. `scores`: this thread's scores of the same keys.
template <class T>
__device__ __forceinline__ float weigh_tile(const AttentionShape& shape, RowState& row,
                                            int64_t first, const float (&scores)[kTileRows / 4],
                                            float* weights) {
  float max = row.max;
#pragma unroll
  for (int n = 0; n < kTileRows / kRowThreads; ++n) max = fmaxf(max, scores[n]);
  max = warp_reduce<kRowThreads>(max, [](float a, float b) { return fmaxf(a, b); });
  const float base = max == -INFINITY ? 0.0f : max;
  const float shrink = expf(row.max - base);
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < kTileRows / kRowThreads; ++n) {
    const int c = static_cast<int>(threadIdx.x) % kRowThreads + n * kRowThreads;
    const int64_t j = first + c;
    if (j < row.keys.begin || j >= row.keys.end) continue;
    const float weight = expf(scores[n] - base);
    sum += weight;
    weights[c] = rounded<T>(weight * shape.kept(row.b, row.h, row.i, j));
  }
  row.sum = row.sum * shrink + warp_reduce<kRowThreads>(sum, Add{});
  row.max = max;
  return shrink;
}

template <class T, int kStride>
__global__ void __launch_bounds__(kAttentionThreads) forward_kernel(ForwardArgs<T> args) {
  constexpr int kEach = (kStride - 1) / kRowThreads;
  const AttentionShape& shape = args.shape;
  float* q_tile = dynamic_shared<float>();
  float* k_tile = q_tile + kTileRows * kStride;
  float* v_tile = k_tile + kTileRows * kStride;
  float* weights = v_tile + kTileRows * kStride;
  const int r = static_cast<int>(threadIdx.x) / kRowThreads;
  const int part = static_cast<int>(threadIdx.x) % kRowThreads;
  RowState row{.b = blockIdx.z, .h = blockIdx.y, .i = int64_t{blockIdx.x} * kTileRows + r};
  const int64_t first_row = row.i - r;
  const int64_t g = row.h / (shape.H / shape.G);
  row.keys = row.i < shape.Tq ? shape.keys_of(row.b, row.i) : Keys{0, 0};
  load_tile<T, kStride>(q_tile, args.q, row.b, row.h, first_row, shape.Tq, shape.D, shape.aligned);
  float out[kEach] = {};
  const Keys keys = shape.keys_by_position(row.b, first_row, first_row + kTileRows - 1);
  float* mine = weights + r * kScoreStride;
  for (int64_t first = keys.begin / kTileRows * kTileRows; first < keys.end; first += kTileRows) {
    if (!shape.layout_shows_any(row.h, {first_row, first_row + kTileRows},
                                {first, first + kTileRows})) {
      continue;
    }
    const bool sees =
        row.keys.begin < first + kTileRows && row.keys.end > first && row.keys.begin < row.keys.end;
    if (__syncthreads_or(sees ? 1 : 0) == 0) continue;
    load_tile<T, kStride>(k_tile, args.k, row.b, g, first, shape.Tk, shape.D, shape.aligned);
    load_tile<T, kStride>(v_tile, args.v, row.b, g, first, shape.Tk, shape.D, shape.aligned);
    __syncthreads();
    float scores[kTileRows / kRowThreads];
#pragma unroll
    for (int n = 0; n < kTileRows / kRowThreads; ++n) {
      const int c = part + n * kRowThreads;
      const int64_t j = first + c;
      scores[n] = -INFINITY;
      if (j < row.keys.begin || j >= row.keys.end || !shape.layout_sees(row.h, row.i, j)) continue;
      const float product = dot_rows<kStride>(q_tile + r * kStride, k_tile + c * kStride);
      scores[n] = shape.score(row.b, row.h, row.i, j, product).value;
    }
    const float shrink = weigh_tile<T>(shape, row, first, scores, mine);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kEach; ++n) out[n] *= shrink;
    // Weights of keys that the row does not see are not written, and not read.
    add_tile_rows<kStride>(out, mine, v_tile, keys_in_tile(row.keys, first));
  }
  if (row.i >= shape.Tq) return;
  T* to = args.out.at(row.b, row.i, row.h);
  const bool empty = row.sum == 0.0f;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int d = part + n * kRowThreads;
    if (d < shape.D) to[d] = T(empty ? 0.0f : out[n] / row.sum);
  }
  if (args.lse != nullptr && part == 0) {
    args.lse[(row.b * shape.H + row.h) * shape.Tq + row.i] =
        empty ? -INFINITY : row.max + logf(row.sum);
  }
}

}  // namespace

void tile_attention_forward(const AttentionProblem& p, const AttentionShape& shape,
                            const HeadsView& out, float* lse, StreamRef stream) {
  const dim3 grid(tiles_of(p.Tq), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B));
  dispatch_tile_attention(p, [&]<class T, int kStride>() {
    constexpr size_t kShared = kTileRows * (3 * kStride + kScoreStride) * sizeof(float);
    launch(forward_kernel<T, kStride>, grid, dim3(kAttentionThreads), kShared, stream,
           ForwardArgs<T>{shape, rows_of<T>(p.q), rows_of<T>(p.k), rows_of<T>(p.v),
                          written_rows_of<T>(out), lse});
  });
}

}  // namespace zinc::kernels::cuda
