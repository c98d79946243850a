// Flash attention on tensor cores, forward, bf16 and f16 (kernels/attention.h; Dao, 2023,
// "FlashAttention-2", algorithm 1). A block takes 128 queries of one head (64 from head size 129
// on), a warp 32 of them, and walks over the keys that one of them sees, 64 at a time (32), with a
// running maximum and sum per row. Scores, softmax and sums in f32; probabilities are rounded
// before they meet v. A tile that no query of a warp sees changes no bit. Values of keys that a
// query does not see are multiplied by 0: a NaN among the values of a tile reaches all its queries.
// Bytes moved: q and out once, k and v once per 128 queries of a head.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/attention_softmax.h"

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

template <class T, int kD, Known kKnown>
__global__ void __launch_bounds__(kMmaThreads) forward_kernel(ForwardArgs<T> args) {
  constexpr int kRowTiles = kRowTilesOf<kD>, kKeys = kKeysOf<kD>, kRows = kOwnRows<kRowTiles>;
  constexpr bool kPlain = kKnown == Known::plain, kLayout = kKnown == Known::layout;
  const AttentionShape& shape = args.shape;
  T* q_tile = dynamic_shared<T>();
  T* stages = q_tile + kRows * kD;  // each stage: keys, values
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
  const Keys queries{first_row, first_row + kRows};
  const Keys warp_queries{first_row + warp_row, first_row + warp_row + 16 * kRowTiles};
  const Shown<kLayout> shown{shape, h};
  const auto tile_from = [&](int64_t from) {
    return shown.template next_tile<kKeys>(queries, from, keys.end);
  };
  int64_t first = tile_from(keys.begin / kKeys * kKeys), next = first;
  copy_keys(first, 0);
  T* own = q_tile + warp_row * kD;
  const float factor = score_factor<kPlain>(shape);
  Softmax<kRowTiles> softmax;
  Fragments<kRowTiles, kD> out = {};
  for (int stage = 0; first < keys.end; first = next, stage ^= 1) {
    wait_copies<0>();
    __syncthreads();  // nor does anybody use the other stage any more
    next = tile_from(first + kKeys);
    if (next < keys.end) copy_keys(next, stage ^ 1);
    const Keys tile_keys{first, first + kKeys};
    if (!row_keys.any_sees(static_cast<int>(first), kKeys) || !shown.any(warp_queries, tile_keys)) {
      continue;
    }
    const T* k_tile = stages + stage * 2 * kKeys * kD;
    Fragments<kRowTiles, kKeys> scores;
    multiply_rows<kD, kRowTiles, kKeys>(scores, own, k_tile);
    const auto place = [&](int row, int column) {
      return QueryAndKey{first_row + warp_row + row, first + column};
    };
    if constexpr (!kPlain) {
      finish_scores<kRowTiles, kKeys>(scores, shape, b, h, place, [](int, int, int, int, float) {});
    }
    hide_scores<kRowTiles, kKeys>(scores, row_keys, static_cast<int>(first));
    shown.template hide<kRowTiles, kKeys>(scores, warp_queries, tile_keys, place);
    float shrink[kRowTiles][2];
    softmax.template weigh<kKeys>(scores, factor, shrink);
    shrink_rows<kRowTiles, kD>(out, shrink);
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
  wait_copies<0>();  // where there is no key, the copies of the first tile
  float scale[kRowTiles][2];
  softmax.finish(scale, factor, args.lse, shape, b, h, first_row + warp_row);
  __syncthreads();
  store_rows<kD, kD, kRowTiles>(own, out, scale, args.out, b, h, first_row + warp_row, shape.Tq,
                                shape.D, args.aligned);
}

}  // namespace

void mma_attention_forward(const AttentionProblem& p, const AttentionShape& shape,
                           const HeadsView& out, float* lse, StreamRef stream) {
  dispatch_mma(p, shape, [&]<class T, int kD, Known kKnown>() {
    constexpr int kRows = kOwnRows<kRowTilesOf<kD>>;
    const dim3 grid(blocks_of(p.Tq, kRows), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B));
    constexpr size_t kShared = (kRows + 4 * kKeysOf<kD>)*kD * sizeof(T);
    launch(forward_kernel<T, kD, kKnown>, grid, dim3(kMmaThreads), kShared, stream,
           ForwardArgs<T>{shape, rows_of<T>(p.q), rows_of<T>(p.k), rows_of<T>(p.v),
                          written_rows_of<T>(out), lse, can_read_packs(out, p.dtype)});
  });
}

}  // namespace zinc::kernels::cuda
