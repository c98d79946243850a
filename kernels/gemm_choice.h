// kernels/gemm_choice.h: what multiplies matrices of 16 bits on a GPU: cuBLASLt, and by which of
// its proposals, or our own kernel for compute capability 9.0, which has the epilogue in the same
// pass (kernels/cuda/gemm_wgmma.cu). Everything here depends on shapes, strides, alignment and the
// table alone, so that every rank, every run and a plan choose alike.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "kernels/matrix_product.h"
#include "kernels/wgmma_use.h"

namespace zinc::kernels {

// The shapes of a line: products at least this large, of this layout.
struct GemmRule {
  DType dtype = DType::bf16;  // of a and b
  bool transpose_a = false, transpose_b = false;
  bool activates = false;  // with an activation, or its derivative, behind the product
  int64_t min_m = 0, min_n = 0, min_k = 0;
  // The faster choice there.
  bool wgmma = false;
  int proposal = 0;  // without wgmma: which proposal of cuBLASLt's heuristic; 0 is its best guess
};
// The first line that fits a product is taken; the library takes a product that no line fits, by
// its best guess. A line stands here when `zinc bench kernels` has measured it on a GPU (op
// `gemm_kernels`); docs/kernels.md has the way from a result to a line. None has been: the table is
// empty.
std::span<const GemmRule> gemm_table();

// The context's slot.
struct GemmChoice {
  WgmmaUse use = WgmmaUse::by_table;
  int proposal = 0;  // with WgmmaUse::never
  std::span<const GemmRule> table = gemm_table();
  int64_t num_runs = 0;  // products that our own kernel has taken
};

// The choice of the current context for `p`.
struct ChosenGemm {
  bool wgmma = false;
  int proposal = 0;
};
ChosenGemm choose_gemm(const MatrixProduct& p);

// Note [Split sums]
// A product with fewer tiles than a GPU has multiprocessors, and a long sum, leaves most of them
// idle. Our own kernel cuts such a sum into parts that lie side by side in the workspace, in f32,
// and a pass adds them in their order. How many depends on the shape alone, as if every GPU had 132
// multiprocessors: the least time by a count of the steps that one of them does, where a part
// written and read costs as much as some steps.
struct GemmWork {
  static constexpr int kTile = 128;  // rows and columns
  static constexpr int kDeep = 64;   // k of a step

  int64_t tiles_m = 0, tiles_n = 0;
  int steps = 0;       // steps of the whole sum
  int parts = 1;       // parts that the sum is cut into
  int part_steps = 0;  // the last part may have fewer
  constexpr int64_t tiles() const { return tiles_m * tiles_n; }
};
// `workspace_bytes`: the most that the parts may take.
GemmWork gemm_work(int64_t m, int64_t n, int64_t k, int64_t workspace_bytes);

}  // namespace zinc::kernels
