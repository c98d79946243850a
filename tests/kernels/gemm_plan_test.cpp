// How matrix products are cut: everything covered once, slices by the shape alone.
#include "kernels/cpu/gemm_plan.h"

#include <gtest/gtest.h>

#include <tuple>

namespace zinc::kernels {
namespace gemm_plan_test {

TEST(GemmPlan, TilesAndSlices_CoverTheProductOnce) {
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{2048, 2304, 768},
                                {1, 1, 0},
                                {1, 50257, 768},
                                {50257, 768, 512},
                                {64, 80, 5000},
                                {513, 385, 1025},
                                {16, 16, 1 << 20}}) {
    for (const cpu::GemmPlan& plan : {cpu::plan_gemm(m, n, k), cpu::plan_rows(m, n, k),
                                      cpu::retile(cpu::plan_gemm(m, n, k), 1, false, 2),
                                      cpu::retile(cpu::plan_gemm(m, n, k), 1, true, 7)}) {
      EXPECT_GE(plan.tile_m * plan.m_tiles, m);
      EXPECT_LT(plan.tile_m * (plan.m_tiles - 1), m);
      EXPECT_GE(plan.tile_n * plan.n_tiles, n);
      EXPECT_LT(plan.tile_n * (plan.n_tiles - 1), n);
      EXPECT_GE(plan.slice_k * plan.k_slices, k);
      if (k > 0) {
        EXPECT_LT(plan.slice_k * (plan.k_slices - 1), k);
      }
    }
  }
}

TEST(GemmPlan, Retiled_KeepsSlicesAndSharesTilesEvenly) {
  const auto plan = [](int64_t m, int64_t n, int64_t k, bool transpose_a, int64_t threads) {
    return cpu::retile(cpu::plan_gemm(m, n, k), 1, transpose_a, threads);
  };
  for (const int64_t threads : {1, 2, 3, 4, 8}) {
    for (const bool transpose_a : {false, true}) {
      const cpu::GemmPlan wide = plan(2304, 768, 512, transpose_a, threads);
      EXPECT_TRUE(wide.tiles() % threads == 0 || wide.tiles() >= 8 * threads)
          << wide.tiles() << " tiles for " << threads;
      EXPECT_EQ(plan(64, 64, 1 << 16, transpose_a, threads).slice_k,
                cpu::plan_gemm(64, 64, 1 << 16).slice_k);
    }
  }
}

TEST(GemmPlan, DeepAndNarrowProducts_AreSlicedForThreads) {
  const cpu::GemmPlan plan = cpu::plan_gemm(64, 64, 1 << 16);
  EXPECT_EQ(plan.tiles(), 1);
  EXPECT_GE(plan.k_slices, 8);
  EXPECT_EQ(cpu::plan_gemm(64, 64, 1 << 16, 100).k_slices, 1);
  EXPECT_EQ(cpu::plan_gemm(2048, 2304, 768).k_slices, 1);
}

// Runs of B's rows stay long; tasks come of k.
TEST(GemmPlan, ProductsOfFewRows_AreCutAlongK) {
  const cpu::GemmPlan plan = cpu::plan_rows(1, 768, 3072);
  EXPECT_EQ(plan.tile_n, 768);
  EXPECT_EQ(plan.k_slices, 8);
  EXPECT_EQ(cpu::plan_rows(8, 3072, 768).tile_n, 3072);
  EXPECT_EQ(cpu::plan_rows(8, 3072, 768).k_slices, 6);
  EXPECT_EQ(cpu::plan_rows(8, 50257, 768).k_slices, 1);
  EXPECT_EQ(cpu::plan_rows(8, 768, 100).k_slices, 1);
}

}  // namespace gemm_plan_test
}  // namespace zinc::kernels
