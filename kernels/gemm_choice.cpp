#include "kernels/gemm_choice.h"

#include <algorithm>

#include "core/context.h"

namespace zinc::kernels {
namespace {

// Tensor maps and whole packs of an epilogue need rows that begin at multiples of 16 bytes.
bool is_aligned(const void* data, int64_t stride, DType dtype) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * size_of(dtype) % 16 == 0;
}

bool can_take(const MatrixProduct& p) {
  constexpr int64_t kPack = 8, kMost = int64_t{1} << 31;
  return is_16bit_float(p.dtype) && p.a_fp8 == Fp8::none && p.batch() == 1 &&
         !(p.transpose_a && p.transpose_b) && p.k > 0 && p.n % kPack == 0 &&
         std::max({p.m, p.n, p.k}) < kMost && is_aligned(p.a, p.lda, p.dtype) &&
         is_aligned(p.b, p.ldb, p.dtype) && is_aligned(p.c, p.ldc, p.c_dtype) &&
         is_aligned(p.addend, p.addend_stride, p.c_dtype) &&
         is_aligned(p.pre, p.pre_stride, p.c_dtype) && is_aligned(p.x, p.x_stride, p.c_dtype) &&
         is_aligned(p.factor, p.factor_stride, p.c_dtype) &&
         is_aligned(p.factor_gradient, p.factor_gradient_stride, p.c_dtype) &&
         is_aligned(p.bias, 0, p.bias_dtype);
}

// Lines are of single products of 16 bits.
bool fits(const GemmRule& rule, const MatrixProduct& p) {
  return rule.dtype == p.dtype && p.a_fp8 == Fp8::none && p.batch() == 1 &&
         rule.transpose_a == p.transpose_a && rule.transpose_b == p.transpose_b &&
         rule.activates == (p.activation != Activation::none) && p.m >= rule.min_m &&
         p.n >= rule.min_n && p.k >= rule.min_k;
}

}  // namespace

std::span<const GemmRule> gemm_table() { return {}; }

ChosenGemm choose_gemm(const MatrixProduct& p) {
  const auto& slot = Context::current().slot<GemmChoice>();
  if (slot.use == WgmmaUse::never) return {.proposal = slot.proposal};
  if (slot.use == WgmmaUse::always) return {.wgmma = can_take(p)};
  for (const GemmRule& rule : slot.table) {
    if (!fits(rule, p) || (rule.wgmma && !can_take(p))) continue;
    return {.wgmma = rule.wgmma, .proposal = rule.proposal};
  }
  return {};
}

GemmWork gemm_work(int64_t m, int64_t n, int64_t k, int64_t workspace_bytes) {
  constexpr int64_t kMultiprocessors = 132, kMaxParts = 32, kFewestSteps = 4, kStepsOfAPart = 12;
  const auto up = [](int64_t value, int64_t unit) { return (value + unit - 1) / unit; };
  GemmWork work{.tiles_m = up(m, GemmWork::kTile), .tiles_n = up(n, GemmWork::kTile)};
  work.steps = static_cast<int>(up(k, GemmWork::kDeep));
  work.part_steps = work.steps;
  int64_t least = up(work.tiles(), kMultiprocessors) * work.steps;
  // Bytes of a part: its sums of products, and its sums over k alone.
  const int64_t room = workspace_bytes / ((m * n + std::max(m, n)) * int64_t{sizeof(float)});
  for (int64_t parts = 2; parts <= std::min(kMaxParts, room); ++parts) {
    const int64_t steps = up(work.steps, parts);
    if (steps < kFewestSteps) break;
    // A number that leaves its last part empty takes no less time than the one before it.
    const int64_t time = up(work.tiles() * parts, kMultiprocessors) * (steps + kStepsOfAPart);
    if (time >= least) continue;
    least = time;
    work.parts = static_cast<int>(parts);
    work.part_steps = static_cast<int>(steps);
  }
  return work;
}

}  // namespace zinc::kernels
