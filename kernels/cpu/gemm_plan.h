// kernels/cpu/gemm_plan.h: how a matrix product is cut into tasks: slices of k by the shape alone,
// tiles too unless retile() is asked.
#pragma once

#include <cstdint>

namespace zinc::kernels::cpu {

// C[m, n] is cut into tiles of tile_m x tile_n (those at the edge are smaller), the sum over k into
// slices of slice_k. Task t computes tile (t / k_slices) and slice (t % k_slices); tiles are
// counted along m first, so that neighbours share their part of B.
struct GemmPlan {
  int64_t m = 0, n = 0, k = 0;
  int64_t tile_m = 0, tile_n = 0, slice_k = 0;
  int64_t m_tiles = 0, n_tiles = 0, k_slices = 0;

  int64_t tiles() const { return m_tiles * n_tiles; }
};

// m, n, batch > 0; k >= 0 (k_slices is 1 for k = 0). A batch of products gives that many times the
// tasks, so each is cut less.
GemmPlan plan_gemm(int64_t m, int64_t n, int64_t k, int64_t batch = 1);

// The same slices in other tiles, which suit `threads` and a product of the kind of bf16_product.h:
// there an element's bits depend on its slice alone, so that tiles may follow the thread count.
GemmPlan retile(GemmPlan plan, int64_t batch, bool transpose_a, int64_t threads);

// For a product of few rows that reads rows of b as they lie, [k, n]: runs of them are long, and
// tasks are made by cutting k.
GemmPlan plan_rows(int64_t m, int64_t n, int64_t k, int64_t batch = 1);

// Floats from one row of a tile's buffer to the next: an odd number of cache lines, because rows
// at powers of two would share few sets of the first-level cache.
int64_t tile_stride(int64_t tile_n);

}  // namespace zinc::kernels::cpu
