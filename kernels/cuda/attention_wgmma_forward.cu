// Flash attention for compute capability 9.0, forward, bf16 and f16 (kernels/attention.h; Shah and
// others, 2024, "FlashAttention-3", algorithm 2): masks, no other terms of the scores, no dropout.
// A block takes 128 queries of one head. One thread of the first warpgroup lets TMA bring 128 keys
// and values after the other into two stages; two warpgroups have 64 queries each. Their products
// (wgmma) are beside them: while a tile's scores are weighed, the tensor cores multiply the next
// scores and the values before, and the warpgroups take turns, so that one multiplies while the
// other weighs. Scores, softmax and sums in f32; probabilities are rounded before they meet v. NaN
// among the values of a tile reaches all its queries. Bytes moved: q and out once, k and v once per
// 128 queries.
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/bulk_copy.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/warpgroup.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kTeams = 2;      // warpgroups with queries
constexpr int kTeamRows = 64;  // queries of one
constexpr int kRows = kTeams * kTeamRows;
constexpr int kKeys = 128;  // keys of a stage
constexpr int kStages = 2;
constexpr int kThreads = (1 + kTeams) * kWarpgroup;
// The copying warpgroup gives registers to the others: 24 + 2 * 240 of 3 * 168 for each lane.
constexpr int kCopyRegisters = 24, kTeamRegisters = 240;
constexpr int kFirstTurn = 1;  // the named barrier of the first team's turn

template <class T>
struct WgmmaForwardArgs {
  CUtensorMap q, k, v;
  AttentionShape shape;
  HeadRows<T> out;
  float* lse;
  bool aligned;  // out
};

struct Barriers {
  BulkBarrier queries;
  // The data of a stage has come; the data is not needed any more.
  BulkBarrier keys[kStages], values[kStages];
  BulkBarrier keys_read[kStages], values_read[kStages];
};

// Dynamic shared memory: tiles of 64 columns, as many as the head size has, side by side.
template <class T, int kD>
struct Memory {
  static constexpr int kTiles = kD / kBoxColumns;
  static constexpr int kQueryTile = kTeamRows * kBoxColumns, kKeyTile = kKeys * kBoxColumns;
  static constexpr uint32_t kQueryBytes = kRows * kD * sizeof(T);
  static constexpr uint32_t kKeyBytes = kKeys * kD * sizeof(T);
  static constexpr size_t kBytes = kQueryBytes + 2 * kStages * kKeyBytes + sizeof(Barriers);
  T* base;

  __device__ T* queries(int team) const { return base + team * kTeamRows * kD; }
  __device__ T* keys(int stage) const { return base + kRows * kD + stage * kKeys * kD; }
  __device__ T* values(int stage) const { return keys(kStages + stage); }
  __device__ Barriers& barriers() const {
    return *reinterpret_cast<Barriers*>(base + kRows * kD + 2 * kStages * kKeys * kD);
  }
};

// The tiles of keys that a block walks over.
struct Walk {
  int64_t first;  // key
  int count;      // tiles
};

__device__ __forceinline__ int stage_of(int tile) { return tile % kStages; }
// The parity of the phase that a stage's barriers have for the tile.
__device__ __forceinline__ uint32_t parity_of(int tile) {
  return static_cast<uint32_t>(tile / kStages) & 1u;
}

// One thread copies the rows of keys of (b, head) from `first` on into a stage.
template <class T, int kD>
__device__ __forceinline__ void copy_tiles(T* to, const CUtensorMap& map, BulkBarrier& arrived,
                                           int tile_elements, int64_t first, int64_t head,
                                           int64_t b) {
#pragma unroll
  for (int t = 0; t < Memory<T, kD>::kTiles; ++t) {
    copy_box(to + t * tile_elements, map, arrived, t * kBoxColumns, static_cast<int32_t>(first),
             static_cast<int32_t>(head), static_cast<int32_t>(b));
  }
}

template <class T, int kD>
__device__ __forceinline__ void copy_all(const WgmmaForwardArgs<T>& args,
                                         const Memory<T, kD>& memory, const Walk& walk,
                                         int64_t first_row, int64_t b, int64_t h, int64_t g) {
  using M = Memory<T, kD>;
  Barriers& barriers = memory.barriers();
  arrive_expecting(barriers.queries, M::kQueryBytes);
  for (int team = 0; team < kTeams; ++team) {
    copy_tiles<T, kD>(memory.queries(team), args.q, barriers.queries, M::kQueryTile,
                      first_row + team * kTeamRows, h, b);
  }
  for (int tile = 0; tile < walk.count; ++tile) {
    const int stage = stage_of(tile);
    const int64_t first = walk.first + int64_t{tile} * kKeys;
    // A stage's first use waits for no reader: the phase before the first is over.
    wait(barriers.keys_read[stage], parity_of(tile) ^ 1u);
    arrive_expecting(barriers.keys[stage], M::kKeyBytes);
    copy_tiles<T, kD>(memory.keys(stage), args.k, barriers.keys[stage], M::kKeyTile, first, g, b);
    wait(barriers.values_read[stage], parity_of(tile) ^ 1u);
    arrive_expecting(barriers.values[stage], M::kKeyBytes);
    copy_tiles<T, kD>(memory.values(stage), args.v, barriers.values[stage], M::kKeyTile, first, g,
                      b);
  }
}

// scores = own queries * keys of the stage.
template <class T, int kD>
__device__ __forceinline__ void multiply_keys(Fragments<1, kKeys>& scores, const T* queries,
                                              const T* keys) {
  using M = Memory<T, kD>;
#pragma unroll
  for (int k = 0; k < kD; k += 16) {
    const int tile = k / kBoxColumns, column = k % kBoxColumns;
    multiply_async<T, false>(scores[0], tile_descriptor(queries + tile * M::kQueryTile, column),
                             tile_descriptor(keys + tile * M::kKeyTile, column), k > 0);
  }
}

// out += weights * values of the stage.
template <class T, int kD>
__device__ __forceinline__ void add_values(Fragments<1, kD>& out, const Weights<1, kKeys>& weights,
                                           const T* values) {
  constexpr uint32_t kToNextColumns = Memory<T, kD>::kKeyTile * sizeof(T);
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    multiply_async<T, true>(out[0], weights[0][k],
                            tile_descriptor(values, k * 16 * kBoxColumns, kToNextColumns), true);
  }
}

template <class T, int kD>
__device__ __forceinline__ void attend(const WgmmaForwardArgs<T>& args, const Memory<T, kD>& memory,
                                       const Walk& walk, int team, int64_t first_row, int64_t b,
                                       int64_t h) {
  const AttentionShape& shape = args.shape;
  Barriers& barriers = memory.barriers();
  const int warp_row = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16;
  const RowKeys<1> row_keys(shape, b, first_row + warp_row);
  const float factor = score_factor<true>(shape);
  const int my_turn = kFirstTurn + team, next_turn = kFirstTurn + (team + 1) % kTeams;
  const T* queries = memory.queries(team);
  Softmax<1> softmax;
  Fragments<1, kD> out = {};
  Fragments<1, kKeys> scores;
  Weights<1, kKeys> weights;
  float shrink[1][2];
  const auto multiply = [&](int tile) {
    hold(scores[0]);
    begin_products();
    multiply_keys<T, kD>(scores, queries, memory.keys(stage_of(tile)));
    commit_products();
  };
  const auto add = [&](int tile) {
    wait(barriers.values[stage_of(tile)], parity_of(tile));
    hold(out[0]);
    begin_products();
    add_values<T, kD>(out, weights, memory.values(stage_of(tile)));
    commit_products();
  };
  const auto weigh = [&](int tile) {
    hold(scores[0]);
    arrive(barriers.keys_read[stage_of(tile)]);
    hide_scores<1, kKeys>(scores, row_keys, static_cast<int>(walk.first) + tile * kKeys);
    softmax.template weigh<kKeys>(scores, factor, shrink);
  };
  wait(barriers.queries, 0);
  if (walk.count > 0) {
    if (team > 0) arrive_threads(kFirstTurn, kTeams * kWarpgroup);  // the first team begins
    wait(barriers.keys[0], 0);
    sync_threads(my_turn, kTeams * kWarpgroup);
    multiply(0);
    arrive_threads(next_turn, kTeams * kWarpgroup);
    wait_products<0>();
    weigh(0);
    round_to<T, 1, kKeys>(weights, scores);
    for (int tile = 1; tile < walk.count; ++tile) {
      wait(barriers.keys[stage_of(tile)], parity_of(tile));
      sync_threads(my_turn, kTeams * kWarpgroup);
      multiply(tile);
      add(tile - 1);
      arrive_threads(next_turn, kTeams * kWarpgroup);
      wait_products<1>();
      weigh(tile);
      wait_products<0>();
      hold(out[0]);
      arrive(barriers.values_read[stage_of(tile - 1)]);
      shrink_rows<1, kD>(out, shrink);
      round_to<T, 1, kKeys>(weights, scores);
    }
    sync_threads(my_turn, kTeams * kWarpgroup);
    add(walk.count - 1);
    // The last team's last turn has no successor.
    if (team + 1 < kTeams) arrive_threads(next_turn, kTeams * kWarpgroup);
    wait_products<0>();
    hold(out[0]);
  }
  float scale[1][2];
  softmax.finish(scale, factor, args.lse, shape, b, h, first_row + warp_row);
  // No warp multiplies with the queries any more: before its last turn the whole team has waited
  // for scores.
  store_rows<kD, kD, 1>(memory.queries(team) + warp_row * kD, out, scale, args.out, b, h,
                        first_row + warp_row, shape.Tq, shape.D, args.aligned);
}

template <class T, int kD>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_forward_kernel(const __grid_constant__ WgmmaForwardArgs<T> args) {
  const AttentionShape& shape = args.shape;
  const Memory<T, kD> memory{dynamic_shared<T>()};
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / (shape.H / shape.G);
  // The longest rows of a causal mask begin first.
  const int64_t first_row = int64_t{gridDim.x - 1 - blockIdx.x} * kRows;
  const Keys keys = keys_of_rows(shape, b, first_row, kRows);
  const int64_t first_key = keys.begin / kKeys * kKeys;
  const int64_t count = keys.end > first_key ? (keys.end - first_key + kKeys - 1) / kKeys : 0;
  const Walk walk{first_key, static_cast<int>(count)};
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    Barriers& barriers = memory.barriers();
    init(barriers.queries, 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init(barriers.keys[stage], 1);
      init(barriers.values[stage], 1);
      init(barriers.keys_read[stage], kTeams * kWarpgroup);
      init(barriers.values_read[stage], kTeams * kWarpgroup);
    }
    fence_barriers();
  }
  __syncthreads();
  if (warpgroup == 0) {
    set_registers<kCopyRegisters, false>();
    if (threadIdx.x == 0) copy_all<T, kD>(args, memory, walk, first_row, b, h, g);
  } else {
    set_registers<kTeamRegisters, true>();
    const int team = warpgroup - 1;
    attend<T, kD>(args, memory, walk, team, first_row + team * kTeamRows, b, h);
  }
}

CUtensorMap map_of(const HeadsView& view, DType dtype, int64_t B, int64_t T, int64_t heads,
                   int64_t D, int64_t rows) {
  return make_tensor_map({.data = view.data,
                          .dtype = dtype,
                          .extent = {D, T, heads, B},
                          .stride = {1, view.row, view.head, view.batch},
                          .rows = rows});
}

}  // namespace

bool takes_wgmma(const AttentionProblem& p, const AttentionShape& shape) {
  constexpr int64_t kMaxHead = 128;
  // Tensor maps have strides.
  const auto repeats = [&](const HeadsView& view, int64_t T, int64_t heads) {
    return (p.B > 1 && view.batch == 0) || (T > 1 && view.row == 0) ||
           (heads > 1 && view.head == 0);
  };
  return is_plain(shape) && shape.layout == nullptr && p.D <= kMaxHead && p.Tq > 0 && p.Tk > 0 &&
         !repeats(p.q, p.Tq, p.H) && !repeats(p.k, p.Tk, p.G) && !repeats(p.v, p.Tk, p.G);
}

void wgmma_attention_forward(const AttentionProblem& p, const AttentionShape& shape,
                             const HeadsView& out, float* lse, StreamRef stream) {
  const auto run = [&]<class T, int kD>() {
    const dim3 grid(blocks_of(p.Tq, kRows), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B));
    launch(wgmma_forward_kernel<T, kD>, grid, dim3(kThreads), Memory<T, kD>::kBytes, stream,
           WgmmaForwardArgs<T>{map_of(p.q, p.dtype, p.B, p.Tq, p.H, p.D, kTeamRows),
                               map_of(p.k, p.dtype, p.B, p.Tk, p.G, p.D, kKeys),
                               map_of(p.v, p.dtype, p.B, p.Tk, p.G, p.D, kKeys), shape,
                               written_rows_of<T>(out), lse, can_read_packs(out, p.dtype)});
  };
  const auto with_type = [&]<class T>() {
    if (p.D <= kBoxColumns) return run.template operator()<T, kBoxColumns>();
    run.template operator()<T, 2 * kBoxColumns>();
  };
  if (p.dtype == DType::bf16) return with_type.template operator()<bf16>();
  with_type.template operator()<f16>();
}

}  // namespace zinc::kernels::cuda
