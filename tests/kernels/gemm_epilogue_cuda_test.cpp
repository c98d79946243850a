// The pass that follows a product of cuBLASLt, which the emulator has not: its bits are those of
// the kernel that does both.
#include <gtest/gtest.h>

#include "kernels/cuda/gemm.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels {
namespace gemm_epilogue_cuda_test {

using test::HostArray;

struct Operands {
  HostArray a, b, bias, x, product, c, pre;
};

// Products of one column and one row, which are exact in f32.
Operands operands_of(int64_t m, int64_t n, int64_t padding) {
  Operands of{HostArray::random({m, 1}, DType::bf16, 1),
              HostArray::random({1, n}, DType::bf16, 2),
              HostArray::random({n}, DType::f32, 3),
              HostArray::random({m, n}, DType::bf16, 4),
              HostArray({m, n}, DType::f32),
              HostArray::strided({m, n}, DType::bf16, padding),
              HostArray({m, n}, DType::bf16)};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) of.product.set(i * n + j, of.a.at(i) * of.b.at(j));
  }
  return of;
}

TEST(Gemm, EpilogueAfterTheLibrary_GivesTheBitsOfOneKernel) {
  if (!test::runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  const test::DeviceScope scope(test::device_for(DType::bf16));
  for (const auto& [n, padding] : {std::pair<int64_t, int64_t>{24, 0}, {24, 8}, {19, 0}, {19, 3}}) {
    for (const bool has_bias : {false, true}) {
      for (const bool has_x : {false, true}) {
        constexpr int64_t m = 5;
        Operands of = operands_of(m, n, padding);
        const View a = of.a, b = of.b, c = of.c, pre = of.pre, x = of.x, bias = of.bias;
        const View product = of.product;
        MatrixProduct p{.m = m, .n = n, .k = 1, .dtype = DType::bf16, .c_dtype = DType::bf16};
        p.device = c.device();
        p.a = a.data(), p.b = b.data(), p.c = c.data();
        p.lda = 1, p.ldb = n, p.ldc = n + padding;
        if (has_bias) p.bias = bias.data();
        p.activation = Activation::gelu_tanh;
        if (has_x) {
          p.x = x.data(), p.x_stride = n;
        } else {
          p.pre = pre.data(), p.pre_stride = n;
        }
        cuda::run_own_product(p, test::test_stream());
        test::test_stream()->synchronize();
        const HostArray expected = of.c, expected_pre = of.pre;
        of.c.set_all(-7.0);
        p.c = of.c.view().data();
        cuda::run_epilogue(p, product.data_as<float>(), 1, test::test_stream());
        test::test_stream()->synchronize();
        EXPECT_EQ(of.c.values(), expected.values()) << n << ", " << padding << ", " << has_bias;
        if (has_x) continue;  // nothing is before the activation
        EXPECT_EQ(of.pre.values(), expected_pre.values());
        of.c.set_all(-7.0);
        p.c = of.c.view().data();
        cuda::run_epilogue(p, nullptr, 1, test::test_stream());
        test::test_stream()->synchronize();
        EXPECT_EQ(of.c.values(), expected.values()) << n << ", " << padding << ", of z";
      }
    }
  }
}

}  // namespace gemm_epilogue_cuda_test
}  // namespace zinc::kernels
