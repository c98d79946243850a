#include "kernels/accumulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace accumulate_test {

using test::HostArray;
using testing::HasSubstr;

TEST(Accumulate, EveryPairOfDTypes_AddsInF32AndRoundsOnce) {
  for (const DType from : test::kFloatDTypes) {
    for (const DType to : test::kFloatDTypes) {
      const test::DeviceScope scope(test::device_for(to));
      if (from == DType::f64 && to != DType::f64) continue;
      for (const int64_t n : test::kOddSizes) {
        for (const bool overwrite : {false, true}) {
          const HostArray x = HostArray::random(Shape{n}, from, 1);
          HostArray total =
              overwrite ? HostArray(Shape{n}, to) : HostArray::random(Shape{n}, to, 2);
          HostArray expected(Shape{n}, to);
          for (int64_t i = 0; i < n; ++i) {
            double sum = overwrite ? x.at(i) : total.at(i) + x.at(i);
            // The f64 sum of two f32 values may hold more digits than f32: round as f32 does.
            if (to != DType::f64 && !overwrite) {
              sum = static_cast<double>(static_cast<float>(total.at(i)) +
                                        static_cast<float>(x.at(i)));
            }
            expected.set(i, sum);
          }
          accumulate({.x = x, .accumulator = total, .overwrite = overwrite}, test::test_stream());
          ASSERT_TRUE(test::same_bits(total, expected)) << name_of(from) << " into " << name_of(to);
        }
      }
    }
  }
}

TEST(Accumulate, F32Accumulator_KeepsWhatABf16OneLoses) {
  const HostArray small = HostArray::full(Shape{1}, DType::bf16, 0x1p-9);
  HostArray wide = HostArray::full(Shape{1}, DType::f32, 1.0);
  HostArray narrow = HostArray::full(Shape{1}, DType::bf16, 1.0);
  for (int i = 0; i < 4; ++i) {
    accumulate({.x = small, .accumulator = wide}, test::test_stream());
    accumulate({.x = small, .accumulator = narrow}, test::test_stream());
  }
  EXPECT_EQ(wide.at(0), 1.0 + 0x1p-7);
  EXPECT_EQ(narrow.at(0), 1.0);
}

TEST(Accumulate, LongArray_SameBitsForAllThreadCounts) {
  const HostArray x = HostArray::random(Shape{100'003}, DType::bf16, 3);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    HostArray total = HostArray::random(x.shape(), DType::f32, 4);
    accumulate({.x = x, .accumulator = total}, test::test_stream());
    return std::vector<HostArray>{total};
  }));
}

TEST(Accumulate, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{8}, DType::f64);
  HostArray total(Shape{8}, DType::f32);
  const auto message = [&](const Accumulate& args) {
    return test::message_of_invalid([&] { accumulate(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .accumulator = total}), HasSubstr("needs an accumulator of f64"));
  EXPECT_THAT(message({.x = total, .accumulator = total}), HasSubstr("must not overlap"));
  EXPECT_THAT(message({.x = total.view().narrow(0, 0, 4), .accumulator = x}),
              HasSubstr("shape [8], not [4]"));
  HostArray half(Shape{8}, DType::bf16);
  EXPECT_EQ(cost(Accumulate{.x = half, .accumulator = total}).bytes(), 16 + 32 + 32);
  EXPECT_EQ(cost(Accumulate{.x = half, .accumulator = total, .overwrite = true}).bytes(), 16 + 32);
  accumulate({.x = test::meta_view(Shape{8}, DType::f32),
              .accumulator = test::meta_view(Shape{8}, DType::f32, 2)},
             test::test_stream());
}

}  // namespace accumulate_test
}  // namespace zinc::kernels
