// Matrix products for compute capability 9.0, bf16 and f16, with the epilogue in the same pass
// (kernels/gemm.h; choose_gemm() decides where it runs). A block takes tiles of 128 x 128 one after
// the other. One thread of the first warpgroup lets TMA bring 128 rows of both operands, 64 deep,
// into five stages; two warpgroups take turns: while one multiplies (wgmma), the other finishes its
// tile. Every element is the sum over k in order, in f32, in parts where Note [Split sums] cuts it.
// If an operand is summed over k, too, the tiles of the first row, or column, compute these sums on
// the way. Bytes moved: a once per 128 columns and b once per 128 rows, of which L2 holds what
// eight rows of tiles share; what the epilogue reads and writes once; 8 bytes for each element of a
// part.
#include "core/context.h"
#include "kernels/cuda/capability.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_epilogue.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/warp.h"
#include "kernels/cuda/warpgroup.h"
#include "kernels/gemm_choice.h"

namespace zinc::kernels::cuda {
namespace {

constexpr int kTile = GemmWork::kTile, kDeep = GemmWork::kDeep;
constexpr int kStages = 5;
constexpr int kTeams = 2;  // warpgroups that multiply
constexpr int kTeamWarps = kWarpgroup / kWarp;
constexpr int kThreads = (1 + kTeams) * kWarpgroup;
// The copying warpgroup gives registers to the others: 24 + 2 * 240 of 3 * 168 for each lane.
constexpr int kCopyRegisters = 24, kTeamRegisters = 240;
constexpr int kFirstTurn = 1;            // the named barrier of the first team's turn
constexpr int kFirstSums = 3;            // the first team's barrier for sums over k
constexpr int kHalf = 64;                // rows that one instruction multiplies
constexpr int64_t kGroup = 8;            // rows of tiles that blocks take side by side
constexpr int kWarpRows = 16;            // rows of an instruction's sums in one warp
constexpr int kStaged = 64;              // columns that a warp finishes at a time
constexpr int kStagedRow = kStaged + 8;  // floats: rows begin in other banks
constexpr int kEach = 8;                 // columns of a thread then
static_assert(kDeep == kBoxColumns && kTile == 2 * kHalf && kTile == 2 * kStaged);

template <class T>
struct GemmArgs {
  CUtensorMap a, b;
  MatrixProduct p;
  GemmWork work;
  float* parts;  // null: the sums are finished here
};

struct Barriers {
  BulkBarrier filled[kStages], read[kStages];
};

// Dynamic shared memory: an operand's 128 rows, or the two halves of 128 columns; then what warps
// exchange when they finish a tile.
template <class T>
struct Memory {
  static constexpr int kOperand = kTile * kDeep;
  static constexpr uint32_t kStageBytes = 2 * kOperand * sizeof(T);
  static constexpr int kWarpFloats = kWarpRows * kStagedRow;
  static constexpr size_t kBytes = kStages * size_t{kStageBytes} +
                                   kTeams * kTeamWarps * kWarpFloats * sizeof(float) +
                                   sizeof(Barriers);
  T* base;

  __device__ T* a(int stage) const { return base + stage * 2 * kOperand; }
  __device__ T* b(int stage) const { return a(stage) + kOperand; }
  __device__ float* sums(int warp) const {
    return reinterpret_cast<float*>(a(kStages)) + warp * kWarpFloats;
  }
  __device__ Barriers& barriers() const {
    return *reinterpret_cast<Barriers*>(sums(kTeams * kTeamWarps));
  }
};

// A tile of c, or of a part of its sum.
struct Item {
  int64_t row, column, part;
  int first, steps;  // of k
};
__device__ __forceinline__ int64_t num_items(const GemmWork& work) {
  return work.tiles() * work.parts;
}
__device__ __forceinline__ Item item_at(const GemmWork& work, int64_t index) {
  const int64_t part = index / work.tiles(), tile = index - part * work.tiles();
  // Down the rows of a group, then on to its next column.
  const int64_t group = tile / (kGroup * work.tiles_n), first_row = group * kGroup;
  const int64_t left = work.tiles_m - first_row, rows = left < kGroup ? left : kGroup;
  const int64_t within = tile - group * kGroup * work.tiles_n;
  const int first = static_cast<int>(part) * work.part_steps;
  const int steps = work.steps - first < work.part_steps ? work.steps - first : work.part_steps;
  return {(first_row + within % rows) * kTile, within / rows * kTile, part, first, steps};
}

__device__ __forceinline__ int stage_of(uint32_t step) { return static_cast<int>(step % kStages); }
// The parity of the phase that a stage's barriers have for the step.
__device__ __forceinline__ uint32_t parity_of(uint32_t step) { return step / kStages & 1u; }

// One thread copies 128 rows of an operand, from `row` on, and 64 elements of k; kByRows: stored as
// k by rows.
template <class T, bool kByRows>
__device__ __forceinline__ void copy_operand(T* to, const CUtensorMap& map, BulkBarrier& filled,
                                             int64_t row, int64_t k) {
  const auto at = [](int64_t index) { return static_cast<int32_t>(index); };
  if constexpr (!kByRows) {
    copy_box(to, map, filled, at(k), at(row), 0, 0);
  } else {
#pragma unroll
    for (int half = 0; half < kTile; half += kBoxColumns) {
      copy_box(to + half * kDeep, map, filled, at(row + half), at(k), 0, 0);
    }
  }
}

template <class T, bool kAByRows, bool kBByRows>
__device__ __forceinline__ void copy_all(const GemmArgs<T>& args, const Memory<T>& memory) {
  Barriers& barriers = memory.barriers();
  const int64_t items = num_items(args.work);
  uint32_t step = 0;
  for (int64_t index = blockIdx.x; index < items; index += gridDim.x) {
    const Item item = item_at(args.work, index);
    for (int s = 0; s < item.steps; ++s, ++step) {
      const int stage = stage_of(step);
      const int64_t k = int64_t{item.first + s} * kDeep;
      // A stage's first use waits for no reader: the phase before the first is over.
      wait(barriers.read[stage], parity_of(step) ^ 1u);
      arrive_expecting(barriers.filled[stage], Memory<T>::kStageBytes);
      copy_operand<T, kAByRows>(memory.a(stage), args.a, barriers.filled[stage], item.row, k);
      copy_operand<T, kBByRows>(memory.b(stage), args.b, barriers.filled[stage], item.column, k);
    }
  }
}

using Sums = float[2][kTile / 8][4];  // sums of the tile's halves, laid out as Fragments

// sums (+)= a stage's operands. Columns of b, and rows of a that are stored by k, lie in two tiles.
template <class T, bool kAByRows, bool kBByRows>
__device__ __forceinline__ void multiply(Sums& sums, const T* a, const T* b, bool adds) {
  constexpr int kRowsOf16 = 16 * kBoxColumns;
  constexpr uint32_t kToNextColumns = kBoxColumns * kDeep * sizeof(T);
#pragma unroll
  for (int k = 0; k < kDeep / 16; ++k) {
    const uint64_t right =
        kBByRows ? tile_descriptor(b, k * kRowsOf16, kToNextColumns) : tile_descriptor(b, k * 16);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const T* rows = a + half * kHalf * kDeep;
      const uint64_t left = tile_descriptor(rows, kAByRows ? k * kRowsOf16 : k * 16);
      multiply_async<T, kBByRows, kAByRows>(sums[half], left, right, adds || k > 0);
    }
  }
}

// Sums over k of an operand that is stored by k: each thread of a team has two columns, and half of
// each step's rows.
constexpr int kPairs = kTile / 2;
using ColumnSums = float[2];
template <class T>
__device__ __forceinline__ void add_columns(ColumnSums& sums, const T* operand) {
  constexpr int kRows = kDeep * kPairs / kWarpgroup;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int column = thread % kPairs * 2, within = column % kBoxColumns;
  const T* box = operand + column / kBoxColumns * kBoxColumns * kDeep;
#pragma unroll 8
  for (int r = 0; r < kRows; ++r) {
    const int row = thread / kPairs * kRows + r;
    // Swizzled: Note [Tiles of wgmma].
    const T* pair = box + row * kBoxColumns + ((within / 8) ^ (row % 8)) * 8 + within % 8;
    sums[0] += static_cast<float>(pair[0]);
    sums[1] += static_cast<float>(pair[1]);
  }
}

// Whether the item's tile also computes the sums of its columns or rows over k.
__device__ __forceinline__ bool makes_sums(const MatrixProduct& p, const Item& item) {
  return p.sums != nullptr && (p.sums_are_of_a ? item.column : item.row) == 0;
}

// The second half of the rows is in the team's last two warps, which hand it to its first two.
template <class T>
__device__ __forceinline__ void finish_columns(const GemmArgs<T>& args, const Item& item,
                                               const ColumnSums& sums, const Memory<T>& memory,
                                               int team) {
  const MatrixProduct& p = args.p;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % kWarp;
  const int pair = thread % kPairs;
  float* given = memory.sums(team * kTeamWarps + pair / kWarp) + 2 * lane;
  sync_threads(kFirstSums + team, kWarpgroup);  // nobody reads the tile before
  if (thread >= kPairs) *reinterpret_cast<float2*>(given) = float2{sums[0], sums[1]};
  sync_threads(kFirstSums + team, kWarpgroup);  // all of them are there
  if (thread >= kPairs) return;
  const int64_t count = p.num_sums(), first = (p.sums_are_of_a ? item.row : item.column) + 2 * pair;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (first + i >= count) continue;
    const float sum = sums[i] + given[i];
    if (args.parts != nullptr) {
      args.parts[args.work.parts * p.m * p.n + item.part * count + first + i] = sum;
    } else {
      store_sum<T>(p, first + i, sum);
    }
  }
}

// The sums of an item whose first step is the block's `step`. `added`: 0 nothing; 1, 2: a's, b's
// columns are added up.
template <class T, bool kAByRows, bool kBByRows>
__device__ __forceinline__ void multiply_all(Sums& sums, const Memory<T>& memory, int steps,
                                             uint32_t step, int added, ColumnSums& columns) {
  Barriers& barriers = memory.barriers();
  const auto release = [&](uint32_t done) {
    if (threadIdx.x % kWarp == 0) arrive(barriers.read[stage_of(done)]);
  };
  for (int s = 0; s < steps; ++s, ++step) {
    const int stage = stage_of(step);
    wait(barriers.filled[stage], parity_of(step));
    hold(sums[0]);
    hold(sums[1]);
    begin_products();
    multiply<T, kAByRows, kBByRows>(sums, memory.a(stage), memory.b(stage), s > 0);
    commit_products();
    if constexpr (kAByRows || kBByRows) {
      if (added != 0) {
        add_columns(columns, added == 1 ? memory.a(stage) : memory.b(stage));
        __syncwarp();  // before the stage is given back
      }
    }
    wait_products<1>();
    if (s > 0) release(step - 1);
  }
  wait_products<0>();
  hold(sums[0]);
  hold(sums[1]);
  release(step - 1);
}

// Columns [kStaged * (quarter % 2), + kStaged) of the warp's rows in half quarter / 2.
template <int kQuarter>
__device__ __forceinline__ void stage_sums(float* to, const Sums& sums, int lane) {
  constexpr int kFirst = kQuarter % 2 * (kStaged / 8);
#pragma unroll
  for (int c = 0; c < kStaged / 8; ++c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float* pair = &sums[kQuarter / 2][kFirst + c][2 * r];
      float* at = to + (lane / 4 + 8 * r) * kStagedRow + 8 * c + lane % 4 * 2;
      *reinterpret_cast<float2*>(at) = float2{pair[0], pair[1]};
    }
  }
}
__device__ __forceinline__ void stage_sums(float* to, const Sums& sums, int lane, int quarter) {
  if (quarter == 0) stage_sums<0>(to, sums, lane);
  if (quarter == 1) stage_sums<1>(to, sums, lane);
  if (quarter == 2) stage_sums<2>(to, sums, lane);
  if (quarter == 3) stage_sums<3>(to, sums, lane);
}

// A warp finishes the tile. It goes through shared memory, so that a thread has columns side by
// side.
template <class T, class TC>
__device__ __forceinline__ void finish_tile(const GemmArgs<T>& args, const Item& item,
                                            const Sums& sums, float* staged) {
  constexpr int kPerRow = kStaged / kEach;
  const MatrixProduct& p = args.p;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp_row = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * kWarpRows;
  const auto alpha = static_cast<float>(p.alpha);
#pragma unroll 1
  for (int quarter = 0; quarter < 4; ++quarter) {
    __syncwarp();  // nobody reads the quarter before
    stage_sums(staged, sums, lane, quarter);
    __syncwarp();  // all of it is there
    const int64_t column = item.column + quarter % 2 * kStaged + lane % kPerRow * kEach;
    const int64_t first_row = item.row + quarter / 2 * kHalf + warp_row;
#pragma unroll 1
    for (int r = lane / kPerRow; r < kWarpRows; r += kWarp / kPerRow) {
      const int64_t row = first_row + r;
      if (row >= p.m || column >= p.n) continue;
      float sum[kEach];
      load_floats(staged + r * kStagedRow, lane % kPerRow * kEach, kStaged, WholePacks{}, sum);
#pragma unroll
      for (int e = 0; e < kEach; ++e) sum[e] *= alpha;
      if (args.parts != nullptr) {
        store_floats(args.parts + (item.part * p.m + row) * p.n, column, p.n, WholePacks{}, sum);
        continue;
      }
      const Pack<TC, kEach> z = rounded_sum<T, TC>(p, sum, row, column, WholePacks{});
      store_pre_activation(p, z, row, column, WholePacks{});
      activate(p, z, row, column, WholePacks{});
    }
  }
}

template <class T, class TC, bool kAByRows, bool kBByRows>
__device__ __forceinline__ void work_through(const GemmArgs<T>& args, const Memory<T>& memory,
                                             int team) {
  const int64_t items = num_items(args.work);
  const int warp = static_cast<int>(threadIdx.x) / kWarp - kTeamWarps;
  Sums sums = {};
  uint32_t step = 0;
  int turn = 0;
  for (int64_t index = blockIdx.x; index < items; index += gridDim.x, turn = turn + 1) {
    const Item item = item_at(args.work, index);
    if (turn % kTeams == team) {
      if (turn > 0) sync_threads(kFirstTurn + team, kTeams * kWarpgroup);
      const int added = !makes_sums(args.p, item) ? 0 : args.p.sums_are_of_a ? 1 : 2;
      ColumnSums columns = {};
      multiply_all<T, kAByRows, kBByRows>(sums, memory, item.steps, step, added, columns);
      // The block's last turn has no successor.
      if (index + gridDim.x < items) {
        arrive_threads(kFirstTurn + (team + 1) % kTeams, kTeams * kWarpgroup);
      }
      if (added != 0) finish_columns(args, item, columns, memory, team);
      finish_tile<T, TC>(args, item, sums, memory.sums(warp));
    }
    step += static_cast<uint32_t>(item.steps);
  }
}

template <class T, class TC, bool kAByRows, bool kBByRows>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_gemm_kernel(const __grid_constant__ GemmArgs<T> args) {
  const Memory<T> memory{dynamic_shared<T>()};
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) {
    Barriers& barriers = memory.barriers();
    for (int stage = 0; stage < kStages; ++stage) {
      init(barriers.filled[stage], 1);
      init(barriers.read[stage], kTeamWarps);
    }
    fence_barriers();
  }
  __syncthreads();
  if (warpgroup == 0) {
    set_registers<kCopyRegisters, false>();
    if (threadIdx.x == 0) copy_all<T, kAByRows, kBByRows>(args, memory);
  } else {
    set_registers<kTeamRegisters, true>();
    work_through<T, TC, kAByRows, kBByRows>(args, memory, warpgroup - 1);
  }
}

// A stored [rows, cols]; `by_rows`: its rows are k.
CUtensorMap map_of(const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                   bool by_rows) {
  return make_tensor_map({.data = data,
                          .dtype = dtype,
                          .extent = {cols, rows, 1, 1},
                          .stride = {1, stride, 0, 0},
                          .rows = by_rows ? kDeep : kTile});
}

template <class T, class TC>
void run_kernel(const GemmArgs<T>& args, unsigned blocks, StreamRef stream) {
  const MatrixProduct& p = args.p;
  const auto run = [&](auto* kernel) {
    launch(kernel, dim3(blocks), dim3(kThreads), Memory<T>::kBytes, stream, args);
  };
  if (p.transpose_a) return run(wgmma_gemm_kernel<T, TC, true, true>);
  if (p.transpose_b) return run(wgmma_gemm_kernel<T, TC, false, false>);
  run(wgmma_gemm_kernel<T, TC, false, true>);
}

}  // namespace

bool run_wgmma_product(const MatrixProduct& p, std::byte* workspace, StreamRef stream) {
  if (compute_capability() / 10 != 9) return false;
  const GemmWork work = gemm_work(p.m, p.n, p.k, kLibraryWorkspaceBytes);
  float* parts = work.parts > 1 ? reinterpret_cast<float*>(workspace) : nullptr;
  const int64_t items = work.tiles() * work.parts;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(items, multiprocessors()));
  const CUtensorMap a = map_of(p.a, p.dtype, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k,
                               p.lda, p.transpose_a);
  const CUtensorMap b = map_of(p.b, p.dtype, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n,
                               p.ldb, !p.transpose_b);
  const auto with_type = [&]<class T>() {
    const GemmArgs<T> args{a, b, p, work, parts};
    if (p.c_dtype == DType::f32) return run_kernel<T, float>(args, blocks, stream);
    run_kernel<T, T>(args, blocks, stream);
  };
  if (p.dtype == DType::bf16) {
    with_type.template operator()<bf16>();
  } else {
    with_type.template operator()<f16>();
  }
  if (parts != nullptr) run_epilogue(p, parts, work.parts, stream);
  ++Context::current().slot<GemmChoice>().num_runs;
  return true;
}

}  // namespace zinc::kernels::cuda
