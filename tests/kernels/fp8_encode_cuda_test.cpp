// Codes of 8 bits for the library's products, whose tensor cores the emulator has not.
#include <gtest/gtest.h>

#include <utility>

#include "kernels/cuda/gemm.h"
#include "kernels/fp8_round.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"
#include "tests/kernels/test_device.h"

namespace zinc::kernels {
namespace fp8_encode_cuda_test {

using test::HostArray;

TEST(Fp8Encode, GivesTheCodesOfRoundedNumbers) {
  if (!test::runs_on_cuda()) GTEST_SKIP() << "a kernel of CUDA's";
  const test::DeviceScope scope(test::device_for(DType::bf16));
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
    for (const bool transposed : {false, true}) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{48, 80}, {33, 70}, {1, 5}}) {
        const HostArray x = HostArray::random({rows, cols}, DType::bf16, 1, -3, 5).with_padding(3);
        HostArray y({rows, cols}, DType::bf16), numbers({2}, DType::f32), largest({1}, DType::f32);
        HostArray codes({rows * cols}, DType::u8);
        const View x_view = x;
        cuda::fp8_encode({.x = x_view,
                          .format = format,
                          .transposed = transposed,
                          .codes = codes.view().data_as<uint8_t>(),
                          .largest = numbers.view().data_as<float>(),
                          .unscale = numbers.view().data_as<float>() + 1},
                         test::test_stream());
        fp8_round({.x = x, .format = format, .y = y, .largest = largest}, test::test_stream());
        test::test_stream()->synchronize();
        EXPECT_EQ(numbers.at(0), largest.at(0));
        const double unscale = numbers.at(1);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            const auto on_grid = static_cast<float>(y.at(i * cols + j) / unscale);
            ASSERT_EQ(codes.at(transposed ? j * rows + i : i * cols + j), fp8_code(format, on_grid))
                << i << ", " << j << (transposed ? " transposed" : "");
          }
        }
      }
    }
  }
}

}  // namespace fp8_encode_cuda_test
}  // namespace zinc::kernels
