#include "autograd/weight_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/philox.h"

namespace zinc::autograd {
namespace weight_encoding_test {

using ::testing::HasSubstr;

// Two pieces of the constructor's reads, and a chunk that is not whole.
constexpr int64_t kNumel = (int64_t{1} << 20) + 4096 + 100;

std::vector<float> some_values() {
  std::vector<float> values(kNumel);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(hash_text(std::to_string(i)) % 2001) / 1000.0f - 1.0f;
  }
  return values;
}

struct Encoded {
  Encoded(BlockFormat format, const std::vector<float>& from)
      : parameter("fc.weight", Shape{kNumel}, Initializer::zeros()),
        read([&from](const Parameter&, int64_t begin, const View& out) {
          std::memcpy(out.data(), from.data() + begin, static_cast<size_t>(out.bytes()));
        }) {
    parameter.set_requires_grad(false);
    parameter.set_block_format(format);
  }
  Parameter parameter;
  ReadValues read;
};

TEST(WeightEncoder, PiecesAreThoseOfTheWhole) {
  const std::vector<float> values = some_values();
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::int8}) {
    const Encoded weight(format, values);
    const WeightEncoder encoder(weight.parameter, weight.read);
    std::vector<std::byte> pieces;
    for (int64_t begin = 0; begin < kNumel; begin += 300 * 1024) {
      const auto piece = encoder.encode(begin, std::min<int64_t>(300 * 1024, kNumel - begin));
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(pieces, encoder.encode(0, kNumel)) << name_of(format);
    // Values of a model in 4 bits are far from the originals, but not farther than a gap of the
    // code.
    std::vector<float> rounded(1024);
    encoder.round(1 << 20, View(rounded.data(), DType::f32, Shape{1024}, kCpu));
    for (size_t i = 0; i < rounded.size(); ++i) {
      ASSERT_NEAR(rounded[i], values[(size_t{1} << 20) + i], 0.17) << name_of(format) << ' ' << i;
    }
  }
}

TEST(WeightEncoder, ANaN_IsRefusedWithTheWeightsName) {
  std::vector<float> values = some_values();
  values.back() = std::numeric_limits<float>::quiet_NaN();
  const auto message_of = [&](BlockFormat format) -> std::string {
    const Encoded weight(format, values);
    try {
      WeightEncoder(weight.parameter, weight.read).encode(1 << 20, kNumel - (1 << 20));
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of(BlockFormat::nf4), HasSubstr("the weight 'fc.weight' has values"));
  EXPECT_THAT(message_of(BlockFormat::int8), HasSubstr("the weight 'fc.weight' has values"));
}

}  // namespace weight_encoding_test
}  // namespace zinc::autograd
