#include "kernels/copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace copy_test {

using test::HostArray;
using testing::HasSubstr;

constexpr DType kAll[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                          DType::i64, DType::i32, DType::u8};

TEST(Copy, BetweenAllDTypesSizesAndStrides_ConvertsAsHostArraysDo) {
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      if (is_float(from) && !is_float(to)) continue;
      for (const int64_t n : test::kOddSizes) {
        const double low = from == DType::u8 ? 0.0 : -100.0;
        const HostArray x = HostArray::random(Shape{2, 3, n}, from, 1, low, 100.0);
        HostArray expected(x.shape(), to);
        for (int64_t i = 0; i < x.numel(); ++i) {
          // u8 from a negative integer wraps.
          expected.set(i, to == DType::u8 ? static_cast<double>(
                                                static_cast<uint8_t>(static_cast<int64_t>(x.at(i))))
                                          : x.at(i));
        }
        HostArray y = HostArray::strided(x.shape(), to, 3);
        copy({.x = x.with_padding(2), .y = y}, test::test_stream());
        ASSERT_TRUE(test::same_bits(y, expected)) << name_of(from) << " to " << name_of(to);
      }
    }
  }
}

TEST(Copy, APartOfTwoDimensions_IsFoundInBoth) {
  const HostArray x = HostArray::random(Shape{3, 6, 7, 16}, DType::f32, 1);
  const ConstView part = x.view().narrow(1, 1, 4).narrow(2, 2, 5);
  for (const DType to : {DType::f32, DType::bf16}) {
    HostArray y(Shape{3, 4, 5, 16}, to);
    copy({.x = part, .y = y}, test::test_stream());
    HostArray expected(y.shape(), to);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t at = ((i / 320 * 6 + i / 80 % 4 + 1) * 7 + i / 16 % 5 + 2) * 16 + i % 16;
      expected.set(i, x.at(at));
    }
    EXPECT_TRUE(test::same_bits(y, expected)) << name_of(to);
  }
}

// Every bit pattern of one 16-bit format, with NaN payloads and denormals.
HostArray all_patterns(DType dtype) {
  HostArray x(Shape{65536}, dtype);
  auto* bits = static_cast<uint16_t*>(x.on_host().data());
  for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
  return x;
}

TEST(Copy, EveryShortFloatToF32AndBack_IsThatOfFloat16H) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const HostArray x = all_patterns(dtype);
    HostArray wide(x.shape(), DType::f32);
    copy({.x = x, .y = wide}, test::test_stream());
    HostArray back(x.shape(), dtype);
    copy({.x = wide, .y = back}, test::test_stream());
    const auto* patterns = static_cast<const uint16_t*>(x.on_host().data());
    const auto* got_wide = static_cast<const uint32_t*>(wide.on_host().data());
    const auto* got_back = static_cast<const uint16_t*>(back.on_host().data());
    for (int i = 0; i < 65536; ++i) {
      float value = 0.0f;
      uint16_t again = 0;
      if (dtype == DType::bf16) {
        const bf16 short_value = std::bit_cast<bf16>(patterns[i]);
        value = static_cast<float>(short_value);
        again = bf16(value).bits;
      } else {
        value = f16::widen(patterns[i]);
        again = f16(value).bits;
      }
      ASSERT_EQ(got_wide[i], std::bit_cast<uint32_t>(value)) << name_of(dtype) << " " << i;
      ASSERT_EQ(got_back[i], again) << name_of(dtype) << " " << i;
    }
  }
}

TEST(Copy, F32OfEveryExponentToShortFloats_RoundsAsFloat16H) {
  // All exponents and signs with mantissas round the ties, the carries and the NaN payloads.
  std::vector<uint32_t> patterns;
  for (uint32_t high = 0; high < 512; ++high) {
    for (const uint32_t mantissa :
         {0x0u,      0x1u,      0xfffu,    0x1000u,   0x1001u,   0x2fffu,  0x3000u,
          0x3001u,   0x7fffu,   0x8000u,   0x8001u,   0x17fffu,  0x18000u, 0x18001u,
          0x400000u, 0x7fefffu, 0x7ff000u, 0x7f7fffu, 0x7f8000u, 0x7fffffu}) {
      patterns.push_back((high << 23) | mantissa);
    }
  }
  const auto n = static_cast<int64_t>(patterns.size());
  HostArray x(Shape{n}, DType::f32);
  std::memcpy(x.on_host().data(), patterns.data(), patterns.size() * 4);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    HostArray y(Shape{n}, dtype);
    copy({.x = x, .y = y}, test::test_stream());
    const auto* got = static_cast<const uint16_t*>(y.on_host().data());
    for (size_t i = 0; i < patterns.size(); ++i) {
      const auto value = std::bit_cast<float>(patterns[i]);
      const uint16_t expected =
          dtype == DType::bf16 ? bf16::round_from(value) : f16::round_from(value);
      ASSERT_EQ(got[i], expected) << name_of(dtype) << " " << std::hex << patterns[i];
    }
  }
}

TEST(Copy, LongArray_SameBitsForAllThreadCounts) {
  const HostArray x = HostArray::random(Shape{100'003}, DType::f32, 2);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    HostArray y(x.shape(), DType::bf16);
    HostArray z(x.shape(), DType::f32);
    copy({.x = x, .y = y}, test::test_stream());
    copy({.x = x, .y = z}, test::test_stream());
    return std::vector<HostArray>{y, z};
  }));
}

TEST(Copy, BadArgumentsCostAndMetaDevice) {
  HostArray x(Shape{8}, DType::f32);
  HostArray ids(Shape{8}, DType::i32);
  HostArray y(Shape{8}, DType::bf16);
  const auto message = [&](const Copy& args) {
    return test::message_of_invalid([&] { copy(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.x = x, .y = ids}), HasSubstr("f32 does not convert to i32"));
  EXPECT_THAT(message({.x = x, .y = x}), HasSubstr("must not overlap"));
  EXPECT_THAT(message({.x = x, .y = y.view().narrow(0, 0, 7)}), HasSubstr("shape [8], not [7]"));
  EXPECT_EQ(cost(Copy{.x = x, .y = y}).bytes(), 48);
  copy({.x = test::meta_view(Shape{8}, DType::f32), .y = test::meta_view(Shape{8}, DType::bf16, 2)},
       test::test_stream());
}

}  // namespace copy_test
}  // namespace zinc::kernels
