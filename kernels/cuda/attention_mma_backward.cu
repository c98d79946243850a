// Flash attention on tensor cores, backward, bf16 and f16 (kernels/attention.h; Dao, 2023,
// "FlashAttention-2", algorithm 2): scores are computed again, probabilities from lse. Two kernels,
// neither of which adds to the output of another block, so that every sum has one order, at the
// price of two products more than one kernel with atomic additions would need: dq, a block per tile
// of queries of a head, over the keys that they see; dk and dv, a block per tile of keys of a key
// head, over the queries of its heads, with the keys as rows and the queries as columns. Scores,
// sums and dscores in f32; probabilities and dscores are rounded before they meet a tile.
// Probabilities of 0 behind a mask still multiply the values there: a NaN reaches all rows of a
// tile. Bytes moved: q, dout, dq once and k, v once per tile of queries; k, v, dk, dv once and q,
// dout once per tile of keys.
#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_mma.h"

namespace zinc::kernels::cuda {
namespace {

// Rows of a warp over 16, and rows of a walked tile: what fits the registers of a thread.
template <int kD>
inline constexpr int kQueryTiles = kD <= 128 ? 2 : 1;
template <int kD>
inline constexpr int kKeysOf = kD <= 64    ? 64
                               : kD == 128 ? 32
                                           : 16;
template <int kD>
inline constexpr int kKeyTiles = kD <= 64 ? 2 : 1;
template <int kD>
inline constexpr int kQueriesOf = kD <= 64    ? 32
                                  : kD == 128 ? 64
                                              : 16;
// A block sums this part of the elements of dk and dv.
template <int kD>
inline constexpr int kSumsOf = kD <= 128 ? kD : 128;

// Note [Masked scores]
// A score that a mask hides becomes -infinity in a pass of its own, which tiles that are seen whole
// leave out: the exponentials behind it have no branch, and the hidden one is 0. Where a query sees
// nothing its lse of -infinity would make that a NaN; 0 stands for it.
__device__ __forceinline__ float to_base_2(float lse) {
  return lse == -INFINITY ? 0.0f : lse * kLog2E;
}

template <class T, int kD, Known kKnown>
__global__ void __launch_bounds__(kMmaThreads) dq_kernel(BackwardArgs<T> args) {
  constexpr int kRowTiles = kQueryTiles<kD>, kKeys = kKeysOf<kD>, kRows = kOwnRows<kRowTiles>;
  constexpr bool kPlain = kKnown == Known::plain, kLayout = kKnown == Known::layout;
  const AttentionShape& shape = args.shape;
  T* q_tile = dynamic_shared<T>();
  T* dout_tile = q_tile + kRows * kD;
  T* stages = dout_tile + kRows * kD;  // each stage: keys, values
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / (shape.H / shape.G);
  const int64_t first_row = int64_t{gridDim.x - 1 - blockIdx.x} * kRows;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * 16 * kRowTiles;
  const int lane_row = static_cast<int>(threadIdx.x) % kWarp / kRowLanes;
  const Keys keys = keys_of_rows(shape, b, first_row, kRows);
  const auto copy_keys = [&](int64_t first, int stage) {
    T* tile = stages + stage * 2 * kKeys * kD;
    copy_rows_async<kD, kKeys>(tile, args.k, b, g, first, keys, shape.D);
    copy_rows_async<kD, kKeys>(tile + kKeys * kD, args.v, b, g, first, keys, shape.D);
    commit_copies();
  };
  copy_rows_async<kD, kRows>(q_tile, args.q, b, h, first_row, Keys{0, shape.Tq}, shape.D);
  copy_rows_async<kD, kRows>(dout_tile, args.dout, b, h, first_row, Keys{0, shape.Tq}, shape.D);
  const Keys queries{first_row, first_row + kRows};
  const Keys warp_queries{first_row + warp_row, first_row + warp_row + 16 * kRowTiles};
  const Shown<kLayout> shown{shape, h};
  const auto tile_from = [&](int64_t from) {
    return shown.template next_tile<kKeys>(queries, from, keys.end);
  };
  int64_t first = tile_from(keys.begin / kKeys * kKeys), next = first;
  copy_keys(first, 0);
  RowKeys<kRowTiles> row_keys(shape, b, first_row + warp_row);
  float lse[kRowTiles][2], delta[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    const Query query = query_of(args, b, h, first_row + warp_row + r * 8 + lane_row);
    lse[r / 2][r % 2] = to_base_2(query.lse);
    delta[r / 2][r % 2] = query.delta;
    if (query.lse == -INFINITY) row_keys.end[r / 2][r % 2] = row_keys.begin[r / 2][r % 2] = 0;
  }
  T* own_q = q_tile + warp_row * kD;
  const T* own_dout = dout_tile + warp_row * kD;
  const float factor = score_factor<kPlain>(shape);
  const bool has_cap = !kPlain && shape.softcap != 0.0f;
  Fragments<kRowTiles, kD> dq = {};
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
    Fragments<kRowTiles, kKeys> scores, dweights;
    multiply_rows<kD, kRowTiles, kKeys>(scores, own_q, k_tile);
    multiply_rows<kD, kRowTiles, kKeys>(dweights, own_dout, k_tile + kKeys * kD);
    const bool all = row_keys.all_see(static_cast<int>(first), kKeys);
    const KeptScores<kRowTiles, kKeys> kept(
        !kPlain && shape.dropout != 0.0f, [&](int row, int column) {
          return shape.kept(b, h, first_row + warp_row + row, first + column);
        });
    const auto dscore = [&](int m, int n, int e) {
      float dweight = dweights[m][n][e];
      if constexpr (!kPlain) dweight *= kept.at(m, n, e) ? shape.keep_factor : 0.0f;
      return dweight - delta[m][e / 2];
    };
    const auto place = [&](int row, int column) {
      return QueryAndKey{first_row + warp_row + row, first + column};
    };
    if constexpr (!kPlain) {
      finish_scores<kRowTiles, kKeys>(scores, shape, b, h, place,
                                      [&](int m, int n, int e, int, float slope) {
                                        dweights[m][n][e] = slope * dscore(m, n, e);
                                      });
    }
    if (!all) {
      for_each_score<kRowTiles, kKeys>([&](int m, int n, int e, int, int column) {
        const bool seen = row_keys.sees(m, e / 2, static_cast<int>(first) + column);
        scores[m][n][e] = seen ? scores[m][n][e] : -INFINITY;
      });
    }
    shown.template hide<kRowTiles, kKeys>(scores, warp_queries, tile_keys, place);
    for_each_score<kRowTiles, kKeys>([&](int m, int n, int e, int, int) {
      scores[m][n][e] = fast_exp2(fmaf(scores[m][n][e], factor, -lse[m][e / 2])) *
                        (has_cap ? dweights[m][n][e] : dscore(m, n, e));
    });
    Weights<kRowTiles, kKeys> dscores;
    round_to<T, kRowTiles, kKeys>(dscores, scores);
    add_weighted_rows<kD, kD, kRowTiles, kKeys>(dq, dscores, k_tile);
  }
  wait_copies<0>();
  __syncthreads();  // where there is no key, copies of other threads may still be under way
  float scale[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) scale[r / 2][r % 2] = shape.scale;
  store_rows<kD, kD, kRowTiles>(own_q, dq, scale, args.dq, b, h, first_row + warp_row, shape.Tq,
                                shape.D, args.dq_aligned);
}

// The data of a walked query, in shared memory.
struct alignas(16) WalkedQuery {
  float lse;  // to base 2
  float delta;
  int begin, end;  // range of the keys that it sees

  __device__ __forceinline__ bool sees(int j) const { return j >= begin && j < end; }
};

template <class T>
__device__ __forceinline__ WalkedQuery walked_query(const BackwardArgs<T>& args, int64_t b,
                                                    int64_t h, int64_t i) {
  const Query query = query_of(args, b, h, i);
  const bool none = query.keys.begin >= query.keys.end;
  return {to_base_2(query.lse), query.delta, none ? 0 : static_cast<int>(query.keys.begin),
          none ? 0 : static_cast<int>(query.keys.end)};
}

// Every query that sees one of the keys [first, first + count) lies in it. All threads of the
// block.
__device__ __forceinline__ Keys queries_of_keys(const AttentionShape& shape, int64_t b,
                                                int64_t first, int count) {
  Keys all = shape.queries_by_position(b, first, first + count - 1);
  if (shape.has_keys_of_values()) {
    int64_t begin = shape.Tq, end = 0;
    for (int64_t i = all.begin + static_cast<int>(threadIdx.x); i < all.end; i += kMmaThreads) {
      const Keys keys = shape.keys_of(b, i);
      if (keys.begin >= first + count || keys.end <= first || keys.begin >= keys.end) continue;
      begin = i < begin ? i : begin;
      end = i + 1;
    }
    all.begin = block_reduce(begin, shape.Tq, Min{});
    all.end = block_reduce(end, int64_t{0}, Max{});
  }
  return all;
}

template <class T, int kD, Known kKnown>
__global__ void __launch_bounds__(kMmaThreads) dkv_kernel(BackwardArgs<T> args) {
  constexpr int kRowTiles = kKeyTiles<kD>, kQueries = kQueriesOf<kD>;
  constexpr int kRows = kOwnRows<kRowTiles>, kSums = kSumsOf<kD>, kParts = kD / kSums;
  constexpr int kTile = kQueries * kD;
  constexpr bool kPlain = kKnown == Known::plain, kLayout = kKnown == Known::layout;
  const AttentionShape& shape = args.shape;
  T* k_tile = dynamic_shared<T>();
  T* v_tile = k_tile + kRows * kD;
  T* stages = v_tile + kRows * kD;  // each stage: queries, their gradients
  auto* walked = reinterpret_cast<WalkedQuery*>(stages + 4 * kTile);  // for both stages
  const int tid = static_cast<int>(threadIdx.x), lane = tid % kWarp;
  const int64_t b = blockIdx.z, g = blockIdx.y, heads = shape.H / shape.G;
  const int first_d = static_cast<int>(blockIdx.x) % kParts * kSums;
  const int64_t first_row = int64_t{blockIdx.x} / kParts * kRows;
  const int warp_row = tid / kWarp * 16 * kRowTiles;
  const int first_key = static_cast<int>(first_row) + warp_row;
  const Keys queries = queries_of_keys(shape, b, first_row, kRows);
  const int first_tile = static_cast<int>(queries.begin / kQueries);
  const int end_tile = queries.begin < queries.end
                           ? static_cast<int>((queries.end + kQueries - 1) / kQueries)
                           : first_tile;
  const int end_head = static_cast<int>((g + 1) * heads);
  const Keys own_keys{first_row, first_row + kRows};
  const Keys warp_keys{first_key, first_key + 16 * kRowTiles};
  const auto queries_of_tile = [](int tile) {
    return Keys{int64_t{tile} * kQueries, int64_t{tile + 1} * kQueries};
  };
  // From a head and a tile on, to the first whose queries the layout shows one of the keys.
  const auto skip_hidden = [&](int& h, int& tile) {
    while (h < end_head && !Shown<kLayout>{shape, h}.any(queries_of_tile(tile), own_keys)) {
      if (++tile < end_tile) continue;
      ++h;
      tile = first_tile;
    }
  };
  const auto copy_queries = [&](int h, int tile, int stage) {
    const int64_t first = int64_t{tile} * kQueries;
    T* to = stages + stage * 2 * kTile;
    copy_rows_async<kD, kQueries>(to, args.q, b, h, first, queries, shape.D);
    copy_rows_async<kD, kQueries>(to + kTile, args.dout, b, h, first, queries, shape.D);
    commit_copies();
    return tid < kQueries ? walked_query(args, b, h, first + tid) : WalkedQuery{};
  };
  copy_rows_async<kD, kRows>(k_tile, args.k, b, g, first_row, Keys{0, shape.Tk}, shape.D);
  copy_rows_async<kD, kRows>(v_tile, args.v, b, g, first_row, Keys{0, shape.Tk}, shape.D);
  commit_copies();
  int h = static_cast<int>(g * heads), tile = first_tile;
  if (tile < end_tile) skip_hidden(h, tile);
  int next_h = h, next_tile = tile;
  WalkedQuery next{};
  if (tile < end_tile && h < end_head) next = copy_queries(h, tile, 0);
  T* own_k = k_tile + warp_row * kD;
  T* own_v = v_tile + warp_row * kD;
  const float factor = score_factor<kPlain>(shape);
  const bool has_cap = !kPlain && shape.softcap != 0.0f;
  Fragments<kRowTiles, kSums> dk = {}, dv = {};
  for (int stage = 0; tile < end_tile && h < end_head; h = next_h, tile = next_tile, stage ^= 1) {
    WalkedQuery* mine = walked + stage * kQueries;
    if (tid < kQueries) mine[tid] = next;
    wait_copies<0>();
    __syncthreads();  // nor does anybody use the other stage any more
    const bool last_tile = tile + 1 == end_tile;
    next_h = last_tile ? h + 1 : h;
    next_tile = last_tile ? first_tile : tile + 1;
    skip_hidden(next_h, next_tile);
    if (next_h < end_head) next = copy_queries(next_h, next_tile, stage ^ 1);
    int any = 0, all = 1;
    for (int i = lane; i < kQueries; i += kWarp) {
      any |= mine[i].begin < first_key + 16 * kRowTiles && mine[i].end > first_key ? 1 : 0;
      all &= mine[i].begin <= first_key && mine[i].end >= first_key + 16 * kRowTiles ? 1 : 0;
    }
    if (__any_sync(kFullWarp, any) == 0 ||
        !Shown<kLayout>{shape, h}.any(queries_of_tile(tile), warp_keys)) {
      continue;
    }
    const bool all_see = __all_sync(kFullWarp, all) != 0;
    const T* q_tile = stages + stage * 2 * kTile;
    Fragments<kRowTiles, kQueries> scores, dweights;
    multiply_rows<kD, kRowTiles, kQueries>(scores, own_k, q_tile);
    multiply_rows<kD, kRowTiles, kQueries>(dweights, own_v, q_tile + kTile);
    const int64_t first_query = int64_t{tile} * kQueries;
    const KeptScores<kRowTiles, kQueries> kept(
        !kPlain && shape.dropout != 0.0f, [&](int row, int column) {
          return shape.kept(b, h, first_query + column, first_key + row);
        });
    const auto keep = [&](int m, int n, int e) {
      if constexpr (kPlain) return 1.0f;
      return kept.at(m, n, e) ? shape.keep_factor : 0.0f;
    };
    const auto dscore = [&](int m, int n, int e, int column) {
      return keep(m, n, e) * dweights[m][n][e] - mine[column].delta;
    };
    const auto place = [&](int row, int column) {
      return QueryAndKey{first_query + column, first_key + row};
    };
    if constexpr (!kPlain) {
      finish_scores<kRowTiles, kQueries>(scores, shape, b, h, place,
                                         [&](int m, int n, int e, int column, float slope) {
                                           dweights[m][n][e] = slope * dscore(m, n, e, column);
                                         });
    }
    if (!all_see) {
      for_each_score<kRowTiles, kQueries>([&](int m, int n, int e, int row, int column) {
        const bool seen = mine[column].sees(first_key + row);
        scores[m][n][e] = seen ? scores[m][n][e] : -INFINITY;
      });
    }
    Shown<kLayout>{shape, h}.template hide<kRowTiles, kQueries>(scores, queries_of_tile(tile),
                                                                warp_keys, place);
    for_each_score<kRowTiles, kQueries>([&](int m, int n, int e, int, int column) {
      const float weight = fast_exp2(fmaf(scores[m][n][e], factor, -mine[column].lse));
      dweights[m][n][e] = weight * (has_cap ? dweights[m][n][e] : dscore(m, n, e, column));
      scores[m][n][e] = weight * keep(m, n, e);
    });
    Weights<kRowTiles, kQueries> weights;
    round_to<T, kRowTiles, kQueries>(weights, scores);
    add_weighted_rows<kD, kSums, kRowTiles, kQueries>(dv, weights, q_tile + kTile, first_d);
    round_to<T, kRowTiles, kQueries>(weights, dweights);
    add_weighted_rows<kD, kSums, kRowTiles, kQueries>(dk, weights, q_tile, first_d);
  }
  wait_copies<0>();
  __syncthreads();  // where there is no query, copies of other threads may still be under way
  float scale[kRowTiles][2], one[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    scale[r / 2][r % 2] = shape.scale;
    one[r / 2][r % 2] = 1.0f;
  }
  store_rows<kD, kSums, kRowTiles>(own_k, dk, scale, args.dk, b, g, first_key, shape.Tk, shape.D,
                                   args.dk_aligned, first_d);
  store_rows<kD, kSums, kRowTiles>(own_v, dv, one, args.dv, b, g, first_key, shape.Tk, shape.D,
                                   args.dv_aligned, first_d);
}

}  // namespace

void mma_attention_backward(const AttentionProblem& p, const AttentionShape& shape,
                            const AttentionGradients& gradients, const float* delta,
                            StreamRef stream) {
  const auto B = static_cast<unsigned>(p.B);
  dispatch_mma(p, shape, [&]<class T, int kD, Known kKnown>() {
    const auto args = backward_args<T>(p, shape, gradients, delta);
    if (p.Tq > 0) {
      constexpr int kRows = kOwnRows<kQueryTiles<kD>>;
      launch(dq_kernel<T, kD, kKnown>, dim3(blocks_of(p.Tq, kRows), static_cast<unsigned>(p.H), B),
             dim3(kMmaThreads), (2 * kRows + 4 * kKeysOf<kD>)*kD * sizeof(T), stream, args);
    }
    if (p.Tk > 0) {
      constexpr int kRows = kOwnRows<kKeyTiles<kD>>, kQueries = kQueriesOf<kD>;
      constexpr unsigned kParts = kD / kSumsOf<kD>;
      launch(dkv_kernel<T, kD, kKnown>,
             dim3(blocks_of(p.Tk, kRows) * kParts, static_cast<unsigned>(p.G), B),
             dim3(kMmaThreads),
             (2 * kRows + 4 * kQueries) * kD * sizeof(T) + 2 * kQueries * sizeof(WalkedQuery),
             stream, args);
    }
  });
}

}  // namespace zinc::kernels::cuda
