#include "kernels/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "core/block_codes.h"
#include "kernels/decode.h"
#include "tests/kernels/encoded_weight.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace encode_test {

using test::absmax_of;
using test::encoded;
using test::HostArray;
using test::kFormats;

// The values that tests/reference/make_quantized.py has written.
template <class T>
std::vector<T> stored(const std::string& name) {
  std::ifstream file("tests/reference/quantized/" + name, std::ios::binary | std::ios::ate);
  EXPECT_TRUE(file.good()) << name;
  std::vector<T> values(static_cast<size_t>(file.tellg()) / sizeof(T));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

template <class T>
ConstView view_of(const std::vector<T>& values) {
  return {values.data(), kDTypeOf<T>, Shape{static_cast<int64_t>(values.size())}, kCpu};
}

float number_at(const uint8_t* bytes) {
  float value = 0.0f;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

TEST(Encode, Codes_AreBitsandbytes) {
  const auto nf4 = stored<float>("nf4.f32"), dynamic = stored<float>("dynamic.f32");
  EXPECT_TRUE(std::ranges::equal(nf4, kNf4Values));
  EXPECT_TRUE(std::ranges::equal(dynamic, kDynamicMap));
}

TEST(Encode, Nf4_HasBitsandbytesBytesAndGivesBackItsValues) {
  const auto weight = stored<bf16>("weight.bf16"), back = stored<bf16>("nf4.bf16");
  const auto codes = stored<uint8_t>("nf4_codes.u8"), nested = stored<uint8_t>("nf4_nested.u8");
  const auto tops = stored<float>("nf4_nested.f32");
  const float offset = stored<float>("nf4_offset.f32").at(0);
  ASSERT_EQ(absmax_of(BlockFormat::nf4, view_of(weight)), stored<float>("nf4_absmax.f32"));

  const HostArray y = encoded(BlockFormat::nf4, view_of(weight));
  const auto* bytes = y.on_host().data_as<uint8_t>();
  for (size_t pair = 0; pair < codes.size(); ++pair) {
    ASSERT_EQ(bytes[pair / 512 * 536 + pair % 512], codes[pair]) << pair;
  }
  for (size_t block = 0; block < nested.size(); ++block) {
    const uint8_t* chunk = bytes + block / 16 * 536;
    ASSERT_EQ(chunk[512 + block % 16], nested[block]) << block;
    ASSERT_EQ(number_at(chunk + 528), tops[block / 256]) << block;
    ASSERT_EQ(number_at(chunk + 532), offset);
  }
  const HostArray values(Shape{y.numel() / 536 * 1024}, DType::bf16);
  const View out = values.view().narrow(0, 0, static_cast<int64_t>(back.size()));
  decode({.x = y, .format = BlockFormat::nf4, .y = out}, test::test_stream());
  for (size_t i = 0; i < back.size(); ++i) {
    ASSERT_EQ(values.at(static_cast<int64_t>(i)), static_cast<float>(back[i])) << i;
  }
}

TEST(Encode, Int8_HasBitsandbytesBytesAndGivesBackItsValues) {
  const auto weight = stored<bf16>("weight.bf16"), back = stored<bf16>("int8.bf16");
  const auto codes = stored<uint8_t>("int8_codes.u8");
  const auto absmax = stored<float>("int8_absmax.f32");
  const HostArray y = encoded(BlockFormat::int8, view_of(weight));
  const auto* bytes = y.on_host().data_as<uint8_t>();
  for (size_t i = 0; i < codes.size(); ++i) {
    ASSERT_EQ(bytes[i / 1024 * 1040 + i % 1024], codes[i]) << i;
  }
  for (size_t block = 0; block < absmax.size(); ++block) {
    ASSERT_EQ(number_at(bytes + block / 4 * 1040 + 1024 + block % 4 * 4), absmax[block]);
  }
  const HostArray values(Shape{static_cast<int64_t>(back.size())}, DType::bf16);
  decode({.x = y, .format = BlockFormat::int8, .y = values}, test::test_stream());
  for (size_t i = 0; i < back.size(); ++i) {
    ASSERT_EQ(values.at(static_cast<int64_t>(i)), static_cast<float>(back[i])) << i;
  }
}

TEST(Encode, PartOfAWeight_HasTheBytesOfTheWhole) {
  const HostArray x = HostArray::random(Shape{70'000}, DType::f32, 3);
  for (const BlockFormat format : kFormats) {
    const HostArray whole = encoded(format, x.on_host());
    const NestedAbsmax nested = nest(absmax_of(format, x.on_host()));
    for (const int64_t begin : {int64_t{1024}, int64_t{16'384}, int64_t{68'608}}) {
      const int64_t n = std::min<int64_t>(20'480, 70'000 - begin);
      HostArray part(Shape{encoded_bytes(format, n)}, DType::u8);
      encode({.x = ConstView(x.on_host()).narrow(0, begin, n),
              .format = format,
              .begin = begin,
              .nested = &nested,
              .y = part.on_host()});
      EXPECT_EQ(std::memcmp(part.on_host().data(),
                            whole.on_host().data_as<uint8_t>() + encoded_bytes(format, begin),
                            static_cast<size_t>(part.numel())),
                0)
          << name_of(format) << ' ' << begin;
    }
  }
}

TEST(Encode, ZerosStayZero_AndWhatIsNoNumberIsFound) {
  for (const BlockFormat format : kFormats) {
    HostArray x = HostArray::full(Shape{300}, DType::f32, 0.0);
    const HostArray y = encoded(format, x.on_host());
    const HostArray back(Shape{300}, DType::f32);
    decode({.x = y, .format = format, .y = back}, test::test_stream());
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(back.at(i), 0.0);
    std::vector<float> absmax(
        static_cast<size_t>((300 + block_numel(format) - 1) / block_numel(format)));
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      x.set(299, bad);
      EXPECT_FALSE(block_absmax(format, x.on_host(), absmax));
    }
  }
}

TEST(Encode, BadArgumentsAndCost) {
  const HostArray x = HostArray::full(Shape{1025}, DType::f32, 1.0);
  HostArray y(Shape{1072}, DType::u8);
  EXPECT_THAT(test::message_of_invalid([&] { encode({.x = x.on_host(), .y = y.on_host()}); }),
              testing::HasSubstr("nf4 needs what all chunks"));
  EXPECT_THAT(test::message_of_invalid([&] {
                encode({.x = x.on_host(), .format = BlockFormat::int8, .y = y.on_host()});
              }),
              testing::HasSubstr("encode: 1025 elements"));
  EXPECT_EQ(cost(Encode{.x = x, .y = y}).bytes(), 4100 + 1072);
}

}  // namespace encode_test
}  // namespace zinc::kernels
