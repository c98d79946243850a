// The f64 path of gemm: plain loops over cache-sized blocks. Sums run over k in order, whatever the
// blocks, so it is also the oracle of the other paths.
#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "kernels/cpu/activation_f64.h"
#include "kernels/matrix_product.h"

namespace zinc::kernels::cpu {
namespace {

constexpr int64_t kRows = 32;
constexpr int64_t kCols = 64;
constexpr int64_t kDepthOfSums = 64;

using Sums = std::array<std::array<double, kCols>, kRows>;

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::silu:
      return x * sigmoid(x);
  }
  return x;
}

double derivative(Activation activation, double x) {
  switch (activation) {
    case Activation::none:
      return 1.0;
    case Activation::gelu_tanh:
      return gelu_tanh_derivative(x);
    case Activation::gelu_erf:
      return gelu_erf_derivative(x);
    case Activation::silu:
      return sigmoid(x) * (1.0 + x * sigmoid(-x));
  }
  return 1.0;
}

void sum_tile(const MatrixProduct& p, const double* a, const double* b, int64_t i, int64_t j,
              int64_t rows, int64_t cols, Sums& sums) {
  std::array<std::array<double, kCols>, kDepthOfSums> block;
  for (auto& row : sums) row.fill(0.0);
  for (int64_t q = 0; q < p.k; q += kDepthOfSums) {
    const int64_t depth = std::min(kDepthOfSums, p.k - q);
    for (int64_t d = 0; d < depth; ++d) {
      auto& row = block[static_cast<size_t>(d)];
      row.fill(0.0);
      for (int64_t c = 0; c < cols; ++c) {
        row[static_cast<size_t>(c)] =
            p.transpose_b ? b[(j + c) * p.ldb + q + d] : b[(q + d) * p.ldb + j + c];
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      auto& sum = sums[static_cast<size_t>(r)];
      for (int64_t d = 0; d < depth; ++d) {
        const double x = p.transpose_a ? a[(q + d) * p.lda + i + r] : a[(i + r) * p.lda + q + d];
        const auto& row = block[static_cast<size_t>(d)];
        for (size_t c = 0; c < kCols; ++c) sum[c] += x * row[c];
      }
    }
  }
}

void finish_block(const MatrixProduct& p, double* c, int64_t i, int64_t j, int64_t rows,
                  int64_t cols, const Sums& sums) {
  const auto* bias = static_cast<const double*>(p.bias);
  const auto* addend = static_cast<const double*>(p.addend) + (c - static_cast<double*>(p.c));
  const auto* x = static_cast<const double*>(p.x);
  auto* pre = static_cast<double*>(p.pre);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t s = 0; s < cols; ++s) {
      double& out = c[(i + r) * p.ldc + j + s];
      double z = p.alpha * sums[static_cast<size_t>(r)][static_cast<size_t>(s)];
      if (p.beta != 0.0) z += p.beta * addend[(i + r) * p.addend_stride + j + s];
      if (bias != nullptr) z += bias[j + s];
      if (p.factor != nullptr) {
        const double at = x[(i + r) * p.x_stride + j + s];
        const double u = static_cast<const double*>(p.factor)[(i + r) * p.factor_stride + j + s];
        out = z * u * derivative(p.activation, at);
        static_cast<double*>(p.factor_gradient)[(i + r) * p.factor_gradient_stride + j + s] =
            z * activate(p.activation, at);
      } else if (x != nullptr) {
        out = z * derivative(p.activation, x[(i + r) * p.x_stride + j + s]);
      } else {
        if (pre != nullptr) pre[(i + r) * p.pre_stride + j + s] = z;
        out = activate(p.activation, z);
      }
    }
  }
}

}  // namespace

void run_product_f64(const MatrixProduct& p) {
  const int64_t row_blocks = (p.m + kRows - 1) / kRows;
  const int64_t col_blocks = (p.n + kCols - 1) / kCols;
  parallel_for(p.batch() * row_blocks * col_blocks, 1, [&](int64_t begin, int64_t end) {
    Sums sums;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t i = t / col_blocks % row_blocks * kRows;
      const int64_t j = t % col_blocks * kCols;
      const int64_t index = t / (row_blocks * col_blocks);
      const int64_t rows = std::min(kRows, p.m - i);
      const int64_t cols = std::min(kCols, p.n - j);
      sum_tile(p, static_cast<const double*>(p.a) + p.offset(index, p.a_step),
               static_cast<const double*>(p.b) + p.offset(index, p.b_step), i, j, rows, cols, sums);
      finish_block(p, static_cast<double*>(p.c) + p.offset(index, p.c_step), i, j, rows, cols,
                   sums);
    }
  });
}

}  // namespace zinc::kernels::cpu
