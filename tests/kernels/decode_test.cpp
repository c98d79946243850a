#include "kernels/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/encoded_weight.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace decode_test {

using test::absmax_of;
using test::encoded;
using test::HostArray;
using test::kFormats;
using testing::HasSubstr;

// The nearest value of the code, found among all of them in f64, times the scale.
TEST(Decode, EveryDTypeAndSize_GivesBackTheNearestValue) {
  for (const BlockFormat format : kFormats) {
    for (const DType dtype : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(dtype));
      for (const int64_t n : {1, 63, 64, 65, 255, 1023, 1025, 40000}) {
        const HostArray x = HostArray::random(Shape{n}, dtype, 7);
        const HostArray y = encoded(format, x.on_host());
        const HostArray back(Shape{n}, dtype);
        decode({.x = y, .format = format, .y = back}, test::test_stream());
        const std::vector<float> absmax = absmax_of(format, x.on_host());
        // Half of the widest gap of the code: 0.304 between -1 and -0.696; 0.0141 of the dynamic
        // map, at -1 0.0071 more. The absmax of nf4 is known to 0.0071 of the largest difference
        // of two of them, below 0.07 here.
        const double bound = format == BlockFormat::nf4 ? 0.153 + 0.0005 : 0.0072;
        for (int64_t i = 0; i < n; ++i) {
          const double scale = absmax[static_cast<size_t>(i / block_numel(format))];
          ASSERT_NEAR(back.at(i), x.at(i), bound * scale + 0.004 * scale)
              << name_of(format) << ' ' << name_of(dtype) << ' ' << n << ' ' << i;
        }
      }
    }
  }
}

TEST(Decode, BadArgumentsNamesAndCost) {
  const HostArray x(Shape{536}, DType::u8);
  HostArray y(Shape{1025}, DType::bf16);
  EXPECT_THAT(test::message_of_invalid([&] {
                decode({.x = x, .format = BlockFormat::nf4, .y = y}, test::test_stream());
              }),
              HasSubstr("decode: x must"));
  EXPECT_EQ(cost(Decode{.x = x, .format = BlockFormat::nf4, .y = y}).bytes(), 536 + 2050);
  for (const BlockFormat format : kFormats) {
    EXPECT_EQ(block_format_named(name_of(format)), format);
  }
  EXPECT_EQ(block_format_named("fp4"), std::nullopt);
}

}  // namespace decode_test
}  // namespace zinc::kernels
