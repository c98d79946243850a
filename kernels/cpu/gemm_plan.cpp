#include "kernels/cpu/gemm_plan.h"

#include <algorithm>

namespace zinc::kernels::cpu {
namespace {

// Note [Tile sizes]
// Measured on Zen 4 in bf16 on the shapes of GPT-2 with 512 tokens, where an uncut product runs at
// 205 to 215 GFLOP/s: 256 x 768 is within 4 % of it for every transpose; 512 x 384, as large, loses
// 7 to 10 % in gradients of weights. Multiples of 48 columns are what oneDNN's AVX-512 kernels
// like. To reach kMinTasks the sum over k is cut first where its slices stay long: their f32
// partial sums cost less than packing operands once more for smaller tiles does (long: 3 % against
// 18 of a head's backward pass; slices of 1024: nothing that shows). Then n is halved, then m.
constexpr int64_t kTileM = 256;
constexpr int64_t kTileN = 768;
constexpr int64_t kMinTileM = 128;
constexpr int64_t kMinTileN = 96;
constexpr int64_t kUnitM = 16;
constexpr int64_t kUnitN = 48;
constexpr int64_t kMinTasks = 16;
constexpr int64_t kLongSliceK = 2048;
constexpr int64_t kMinSliceK = 1024;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The tile for `parts` equal parts of `extent`, rounded up to a multiple of `unit`.
int64_t tile_for(int64_t extent, int64_t parts, int64_t unit) {
  return std::min(extent, divide_up(divide_up(extent, parts), unit) * unit);
}

}  // namespace

GemmPlan plan_gemm(int64_t m, int64_t n, int64_t k, int64_t batch) {
  const int64_t min_tasks = divide_up(kMinTasks, batch);
  GemmPlan plan{.m = m, .n = n, .k = k};
  int64_t m_parts = divide_up(m, kTileM);
  int64_t n_parts = divide_up(n, kTileN);
  int64_t slices = 1;
  const auto missing = [&](int64_t tasks) { return m_parts * n_parts * slices < tasks; };
  const auto slice = [&](int64_t least) {
    const int64_t wanted = divide_up(min_tasks, m_parts * n_parts);
    slices = std::max<int64_t>(1, std::min(wanted, k / least));
  };
  if (missing(min_tasks)) slice(kLongSliceK);
  if (missing(min_tasks)) n_parts = std::max(n_parts, std::min(2 * n_parts, n / (kTileN / 2)));
  if (missing(min_tasks)) slice(kMinSliceK);
  if (missing(min_tasks / 2)) {
    m_parts = std::max(m_parts, std::min(divide_up(min_tasks, n_parts), m / kMinTileM));
  }
  if (missing(min_tasks / 2)) {
    n_parts = std::max(n_parts, std::min(divide_up(min_tasks, m_parts), n / kMinTileN));
  }
  plan.tile_m = tile_for(m, m_parts, kUnitM);
  plan.tile_n = tile_for(n, n_parts, kUnitN);
  plan.m_tiles = divide_up(m, plan.tile_m);
  plan.n_tiles = divide_up(n, plan.tile_n);
  plan.slice_k = slices == 1 ? k : divide_up(divide_up(k, slices), 64) * 64;
  plan.k_slices = k == 0 ? 1 : divide_up(k, plan.slice_k);
  return plan;
}

int64_t tile_stride(int64_t tile_n) {
  const int64_t lines = divide_up(tile_n, 16);
  return (lines + (lines % 2 == 0 ? 1 : 0)) * 16;
}

}  // namespace zinc::kernels::cpu
