// Attention at the head sizes that CUDA kernels are made for, and which kernels those are.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/attention_inputs.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace attention_heads_test {

using namespace zinc::test;

// bf16 and f16 with heads of whole 16 bytes take tensor cores on a GPU, and no two of the rows that
// they read at once lie in the same banks.
TEST(Attention, HalfTypesOnAGpu_TakeTensorCoresWithoutBankConflicts) {
  for (const int64_t D : {8, 12, 24, 40, 72, 136}) {
    for (const DType dtype : kShortFloatDTypes) {
      CpuContext context;
      const TensorCoreUse before = tensor_core_use();
      Inputs x({"", 1, 3, 20, 1, 1, D, kCausal}, dtype);
      x.forward(context.stream());
      const TensorCoreUse forward = tensor_core_use();
      x.backward(context.stream());
      const bool expected = counts_tensor_cores() && is_16bit_float(dtype) && D % 8 == 0;
      EXPECT_EQ(forward.products > before.products, expected) << D << " " << to_string(dtype);
      EXPECT_EQ(tensor_core_use().products > forward.products, expected)
          << D << " " << to_string(dtype);
      EXPECT_EQ(tensor_core_use().bank_conflicts, before.bank_conflicts)
          << D << " " << to_string(dtype);
    }
  }
}

// Several tiles of queries and of keys at every size of heads that CUDA kernels are made for.
TEST(Attention, LargeHeadsOverManyTiles_MatchF64) {
  for (const int64_t D : {64, 128, 192}) {
    CpuContext context;
    Inputs x({"", 1, 140, 150, 2, 1, D, kCausal | kDocuments}, DType::bf16);
    x.make_documents_of(90);
    Inputs exact = x.in_f64();
    exact.make_documents_of(90);
    for (Inputs* one : {&x, &exact}) {
      one->forward(context.stream());
      one->backward(context.stream());
    }
    // The bound of LargeHeads_MatchF64; scores grow like sqrt(D).
    const double bound = 2 * epsilon_of(DType::bf16) +
                         16 * epsilon_of(DType::f32) * std::sqrt(static_cast<double>(D) + 90.0);
    EXPECT_LE(relative_l2(x.out, exact.out), bound) << D;
    EXPECT_LE(max_relative_error(x.lse, exact.lse, 1.0), bound) << D;
    EXPECT_LE(relative_l2(x.dv, exact.dv), 2 * bound) << D;
    EXPECT_LE(relative_l2(x.dq, exact.dq), 4 * bound) << D;
    EXPECT_LE(relative_l2(x.dk, exact.dk), 4 * bound) << D;
  }
}

// Head sizes at the edges of the sizes that CUDA kernels are compiled for.
TEST(Attention, LargeHeads_MatchF64) {
  for (const int64_t D : {33, 64, 96, 128, 200, 256}) {
    for (const DType dtype : kShortFloatDTypes) {
      CpuContext context;
      Inputs x({"", 1, 40, 40, 2, 1, D, kCausal}, dtype);
      Inputs exact = x.in_f64();
      for (Inputs* one : {&x, &exact}) {
        one->forward(context.stream());
        one->backward(context.stream());
      }
      // The bound of EveryType_MatchesF64; scores grow like sqrt(D).
      const double scores = std::sqrt(static_cast<double>(D) + 40.0);
      const double bound = 2 * epsilon_of(dtype) + 16 * epsilon_of(DType::f32) * scores;
      EXPECT_LE(relative_l2(x.out, exact.out), bound) << D;
      EXPECT_LE(relative_l2(x.dv, exact.dv), 2 * bound) << D;
      // Probabilities sum to 1 up to their rounding, which meets scores' differences.
      EXPECT_LE(relative_l2(x.dq, exact.dq), 4 * bound) << D;
      EXPECT_LE(relative_l2(x.dk, exact.dk), 4 * bound) << D;
    }
  }
}

}  // namespace attention_heads_test
}  // namespace zinc::kernels
