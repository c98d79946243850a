#include "kernels/cpu/gemm_plan.h"

#include <algorithm>

#include "kernels/cpu/bf16_product.h"

namespace zinc::kernels::cpu {
namespace {

// Note [Tile sizes]
// 512 x 384 runs within a few percent of an uncut product in f32 and bf16, for every transpose
// (measured on Zen 4; a multiple of 48 in n is what oneDNN's AVX-512 kernels like, 336 or 240
// columns lose 10 to 20 %). More tiles than that are cut only to reach kMinTiles, first along m,
// which loses 3 %, then along n, then along k, which costs f32 partial sums. Where k is so long
// that slices of kLongSliceK are enough of them, k is cut instead: lower tiles would read all of B
// once more each, and against such slices partial sums are nothing (gradient of a head's input,
// 512 x 768 x 50257, one thread, bf16: 177 -> 200 GFLOP/s).
constexpr int64_t kTileM = 512;
constexpr int64_t kTileN = 384;
constexpr int64_t kMinTileM = 128;
constexpr int64_t kMinTileN = 96;
constexpr int64_t kUnitM = 16;
constexpr int64_t kUnitN = 48;
constexpr int64_t kMinTiles = 16;
constexpr int64_t kMinSliceK = 1024;
constexpr int64_t kLongSliceK = 4096;

// Note [Tiles of packed products]
// bf16_product packs B once for a column of tiles if all of k fits into one part, else once for
// each tile. So tiles are low where it does, and their sums are still in the second-level cache
// when the epilogue reads them, and high where it does not. A transposed A is packed for each tile:
// then wide tiles pack it seldom. Share of the CPU's peak, one thread, Zen 4, products of GPT-2
// 124M with 512 tokens, tiles of 512 x 384 for all -> these tiles: 0.83 -> 0.86, 0.78 -> 0.85, 0.82
// -> 0.86.
constexpr int64_t kLowTileM = 128;
constexpr int64_t kHighTileM = 512;
constexpr int64_t kNarrowTileN = 192;
constexpr int64_t kWideTileN = 768;
constexpr int64_t kTasksPerThread = 8;  // more than that even out by themselves

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The tile for `parts` equal parts of `extent`, rounded up to a multiple of `unit`.
int64_t tile_for(int64_t extent, int64_t parts, int64_t unit) {
  return std::min(extent, divide_up(divide_up(extent, parts), unit) * unit);
}

}  // namespace

GemmPlan plan_gemm(int64_t m, int64_t n, int64_t k, int64_t batch) {
  const int64_t min_tasks = divide_up(kMinTiles, batch);
  GemmPlan plan{.m = m, .n = n, .k = k};
  int64_t m_parts = divide_up(m, kTileM);
  int64_t n_parts = divide_up(n, kTileN);
  const int64_t long_slices = divide_up(min_tasks, m_parts * n_parts);
  const bool is_long = long_slices > 1 && k / long_slices >= kLongSliceK;
  if (!is_long && m_parts * n_parts < min_tasks) {
    m_parts = std::max(m_parts, std::min(divide_up(min_tasks, n_parts), m / kMinTileM));
  }
  if (!is_long && m_parts * n_parts < min_tasks / 2) {
    n_parts = std::max(n_parts, std::min(divide_up(min_tasks, m_parts), n / kMinTileN));
  }
  plan.tile_m = tile_for(m, m_parts, kUnitM);
  plan.tile_n = tile_for(n, n_parts, kUnitN);
  plan.m_tiles = divide_up(m, plan.tile_m);
  plan.n_tiles = divide_up(n, plan.tile_n);
  int64_t slices = is_long ? long_slices : 1;
  if (!is_long && plan.tiles() < min_tasks / 2) {
    slices = std::max<int64_t>(1, std::min(divide_up(min_tasks, plan.tiles()), k / kMinSliceK));
  }
  plan.slice_k = slices == 1 ? k : divide_up(divide_up(k, slices), 64) * 64;
  plan.k_slices = k == 0 ? 1 : divide_up(k, plan.slice_k);
  return plan;
}

GemmPlan retile(GemmPlan plan, int64_t batch, bool transpose_a, int64_t threads) {
  if (plan.k_slices > 1) return plan;
  const bool is_low = !transpose_a && plan.k <= kBf16Part;
  int64_t m_parts = divide_up(plan.m, is_low ? kLowTileM : kHighTileM);
  int64_t n_parts = divide_up(plan.n, transpose_a ? kWideTileN : kNarrowTileN);
  const auto tasks = [&] { return batch * m_parts * n_parts; };
  while (tasks() < threads && n_parts < plan.n / kMinTileN) ++n_parts;
  while (tasks() < kTasksPerThread * threads && tasks() % threads != 0 &&
         m_parts < plan.m / kMinTileM) {
    ++m_parts;
  }
  plan.tile_m = tile_for(plan.m, m_parts, kUnitM);
  plan.tile_n = tile_for(plan.n, n_parts, kUnitN);
  plan.m_tiles = divide_up(plan.m, plan.tile_m);
  plan.n_tiles = divide_up(plan.n, plan.tile_n);
  return plan;
}

GemmPlan plan_rows(int64_t m, int64_t n, int64_t k, int64_t batch) {
  constexpr int64_t kRowPart = 4096;  // columns: whole rows of B, so that memory is read in a row
  constexpr int64_t kMinTasks = 8, kMinSlice = 64;
  GemmPlan plan{.m = m, .n = n, .k = k, .tile_m = m, .m_tiles = 1};
  plan.tile_n = tile_for(n, divide_up(n, kRowPart), kUnitN);
  plan.n_tiles = divide_up(n, plan.tile_n);
  const int64_t wanted = divide_up(kMinTasks, batch * plan.tiles());
  const int64_t slices = std::max<int64_t>(1, std::min(wanted, k / kMinSlice));
  plan.slice_k = slices == 1 ? k : divide_up(divide_up(k, slices), kMinSlice) * kMinSlice;
  plan.k_slices = k == 0 ? 1 : divide_up(k, plan.slice_k);
  return plan;
}

int64_t tile_stride(int64_t tile_n) {
  const int64_t lines = divide_up(tile_n, 16);
  return (lines + (lines % 2 == 0 ? 1 : 0)) * 16;
}

}  // namespace zinc::kernels::cpu
