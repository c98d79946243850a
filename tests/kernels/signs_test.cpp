#include "kernels/signs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/finite_norm.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace signs_test {

using test::HostArray;
using testing::HasSubstr;

// Elements of chunks that are no padding.
std::vector<double> counts_of(int64_t chunks) {
  constexpr double kCounts[] = {1024, 1, 8, 9, 17, 0, 1023, 512, 1024};
  std::vector<double> counts;
  for (int64_t k = 0; k < chunks; ++k) counts.push_back(kCounts[k % 9]);
  return counts;
}

struct Array {
  explicit Array(int64_t chunks)
      : counts(HostArray::of(counts_of(chunks), Shape{chunks}, DType::i32)),
        x(HostArray::random(Shape{chunks * kSignChunk}, DType::f32, 3)) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (!is_there(i)) x.set(i, 0.0);
      if (i % 37 == 0) x.set(i, i % 2 == 0 ? 0.0 : -0.0);
    }
  }
  int64_t chunks() const { return counts.numel(); }
  bool is_there(int64_t i) const {
    return static_cast<double>(i % kSignChunk) < counts.at(i / kSignChunk);
  }

  HostArray counts, x;
};

HostArray scales_of(const Array& a, const HostArray& runs = {}) {
  HostArray sums(Shape{a.chunks()}, DType::f64), first(Shape{1}, DType::i64);
  HostArray scales(Shape{a.chunks()}, DType::f32);
  finite_norm({.x = a.x, .chunk_sums = sums, .first_nonfinite = first}, test::test_stream());
  sign_scales({.sums = sums,
               .counts = a.counts,
               .runs = runs.numel() > 0 ? ConstView(runs) : ConstView(),
               .scales = scales},
              test::test_stream());
  return scales;
}

// The root of the mean square of the elements [begin, end) of chunks, in f64.
double root_mean_square(const Array& a, int64_t begin, int64_t end) {
  double sum = 0.0, count = 0.0;
  for (int64_t k = begin; k < end; ++k) {
    count += a.counts.at(k);
    for (int64_t i = k * kSignChunk; i < (k + 1) * kSignChunk; ++i) sum += a.x.at(i) * a.x.at(i);
  }
  return count > 0.0 ? std::sqrt(sum / count) : 0.0;
}

TEST(SignScales, OfChunksAndOfRuns_AreRootsOfMeanSquares) {
  const Array a(40);
  const HostArray own = scales_of(a);
  for (int64_t k = 0; k < a.chunks(); ++k) {
    EXPECT_NEAR(own.at(k), root_mean_square(a, k, k + 1), 0x1p-24 * own.at(k)) << k;
  }
  const std::vector<double> places{0, 1, 1, 6, 39, 40};
  const HostArray runs = HostArray::of(places, Shape{6}, DType::i64);
  const HostArray shared = scales_of(a, runs);
  for (size_t run = 0; run + 1 < places.size(); ++run) {
    const auto begin = static_cast<int64_t>(places[run]);
    const auto end = static_cast<int64_t>(places[run + 1]);
    for (int64_t k = begin; k < end; ++k) {
      EXPECT_NEAR(shared.at(k), root_mean_square(a, begin, end), 0x1p-24 * shared.at(k)) << k;
    }
  }
}

TEST(Signs, ThereAndBack_LeaveTheResidual) {
  for (const int64_t chunks : {1, 9, 40}) {
    const Array a(chunks);
    const HostArray scales = scales_of(a);
    HostArray bits(Shape{a.x.numel() / 8}, DType::u8), residual(a.x.shape(), DType::f32);
    HostArray y(a.x.shape(), DType::f32);
    encode_signs(
        {.x = a.x, .scales = scales, .counts = a.counts, .bits = bits, .residual = residual},
        test::test_stream());
    decode_signs({.bits = bits, .scales = scales, .counts = a.counts, .y = y}, test::test_stream());
    for (int64_t i = 0; i < a.x.numel(); ++i) {
      const double scale = scales.at(i / kSignChunk);
      const double value = !a.is_there(i) ? 0.0 : a.x.at(i) >= 0.0 ? scale : -scale;
      ASSERT_EQ(y.at(i), value) << i;
      ASSERT_EQ(residual.at(i),
                static_cast<double>(static_cast<float>(a.x.at(i)) - static_cast<float>(value)))
          << i;
      if (a.is_there(i)) continue;
      ASSERT_EQ(static_cast<int64_t>(bits.at(i / 8)) >> (i % 8) & 1, 0) << i;
    }
  }
}

// What makes a momentum that was sent as signs the same when it is sent again.
TEST(Signs, OfValuesThatAreSigns_ChangeNoBit) {
  Array a(18);
  const HostArray scales = scales_of(a);
  HostArray bits(Shape{a.x.numel() / 8}, DType::u8);
  encode_signs({.x = a.x, .scales = scales, .counts = a.counts, .bits = bits}, test::test_stream());
  decode_signs({.bits = bits, .scales = scales, .counts = a.counts, .y = a.x}, test::test_stream());
  const HostArray again = scales_of(a);
  HostArray bits_again(bits.shape(), DType::u8);
  encode_signs({.x = a.x, .scales = again, .counts = a.counts, .bits = bits_again},
               test::test_stream());
  EXPECT_TRUE(test::same_bits(again, scales));
  EXPECT_TRUE(test::same_bits(bits_again, bits));
}

struct Terms {
  bool signs = true;
  double factor = 1.0;
  double keep = 0.0;
  bool addend = false;
};

TEST(DecodeSigns, AddsItsTermsInTheStatedOrder) {
  const Array a(18);
  const HostArray scales = scales_of(a);
  HostArray bits(Shape{a.x.numel() / 8}, DType::u8);
  encode_signs({.x = a.x, .scales = scales, .counts = a.counts, .bits = bits}, test::test_stream());
  const HostArray before = HostArray::random(a.x.shape(), DType::f32, 5);
  const HostArray addend = HostArray::random(a.x.shape(), DType::f32, 6);
  for (const Terms& terms :
       {Terms{}, Terms{.factor = 0.3}, Terms{.factor = 0.9, .keep = 0.1},
        Terms{.factor = 0.9, .keep = 0.1, .addend = true},
        Terms{.signs = false, .keep = 0.7, .addend = true}, Terms{.factor = 0.5, .addend = true}}) {
    HostArray y = before;
    decode_signs({.bits = terms.signs ? ConstView(bits) : ConstView(),
                  .scales = terms.signs ? ConstView(scales) : ConstView(),
                  .counts = a.counts,
                  .factor = terms.factor,
                  .keep = terms.keep,
                  .addend = terms.addend ? ConstView(addend) : ConstView(),
                  .y = y},
                 test::test_stream());
    const auto factor = static_cast<float>(terms.factor), keep = static_cast<float>(terms.keep);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const float scale = static_cast<float>(scales.at(i / kSignChunk)) * factor;
      float value = a.x.at(i) >= 0.0 ? scale : -scale;
      if (!terms.signs) value = 0.0f;
      if (keep != 0.0f) value = std::fma(keep, static_cast<float>(before.at(i)), value);
      if (terms.addend) value += static_cast<float>(addend.at(i));
      ASSERT_EQ(y.at(i), a.is_there(i) ? static_cast<double>(value) : 0.0) << i;
    }
  }
}

// One pass gives what its parts give.
TEST(SendSigns, HasTheBitsOfItsParts) {
  for (const int64_t chunks : {1, 9, 40}) {
    const Array a(chunks);
    const Array last(chunks);
    const HostArray last_scales = scales_of(last);
    HostArray last_bits(Shape{a.x.numel() / 8}, DType::u8);
    encode_signs({.x = last.x, .scales = last_scales, .counts = last.counts, .bits = last_bits},
                 test::test_stream());
    const HostArray before = HostArray::random(a.x.shape(), DType::f32, 9, -0.1, 0.1);
    for (const bool has_last : {false, true}) {
      const ConstView bits_before = has_last ? ConstView(last_bits) : ConstView();
      const ConstView scales_before = has_last ? ConstView(last_scales) : ConstView();
      Array parts = a;
      decode_signs({.bits = bits_before,
                    .scales = scales_before,
                    .counts = a.counts,
                    .factor = 0.9,
                    .keep = 0.1,
                    .addend = before,
                    .y = parts.x},
                   test::test_stream());
      const HostArray wanted_scales = scales_of(parts);
      HostArray wanted_bits(last_bits.shape(), DType::u8);
      HostArray wanted(a.x.shape(), DType::f32);
      encode_signs({.x = parts.x,
                    .scales = wanted_scales,
                    .counts = a.counts,
                    .bits = wanted_bits,
                    .residual = wanted},
                   test::test_stream());
      HostArray residual = before, bits(last_bits.shape(), DType::u8);
      HostArray scales(Shape{chunks}, DType::f32);
      send_signs({.x = a.x,
                  .share = 0.1,
                  .last_bits = bits_before,
                  .last_scales = scales_before,
                  .last_factor = 0.9,
                  .counts = a.counts,
                  .residual = residual,
                  .bits = bits,
                  .scales = scales},
                 test::test_stream());
      EXPECT_TRUE(test::same_bits(scales, wanted_scales));
      EXPECT_TRUE(test::same_bits(bits, wanted_bits));
      EXPECT_TRUE(test::same_bits(residual, wanted));
    }
  }
}

TEST(EncodeSigns, InPlace_LeavesTheSameResidual) {
  Array a(9);
  const HostArray scales = scales_of(a);
  HostArray bits(Shape{a.x.numel() / 8}, DType::u8), residual(a.x.shape(), DType::f32);
  encode_signs({.x = a.x, .scales = scales, .counts = a.counts, .bits = bits, .residual = residual},
               test::test_stream());
  encode_signs({.x = a.x, .scales = scales, .counts = a.counts, .bits = bits, .residual = a.x},
               test::test_stream());
  EXPECT_TRUE(test::same_bits(a.x, residual));
}

TEST(Signs, BadArgumentsAndCost) {
  const HostArray x(Shape{2048}, DType::f32), scales(Shape{2}, DType::f32);
  const HostArray counts(Shape{2}, DType::i32), odd(Shape{1000}, DType::f32);
  HostArray bits(Shape{256}, DType::u8), y(Shape{2048}, DType::f32);
  EXPECT_THAT(test::message_of_invalid([&] {
                encode_signs({.x = odd, .scales = scales, .counts = counts, .bits = bits},
                             test::test_stream());
              }),
              HasSubstr("encode_signs: x must have whole chunks of 1024 elements, got 1000"));
  EXPECT_THAT(test::message_of_invalid([&] {
                decode_signs({.bits = bits, .counts = counts, .y = y}, test::test_stream());
              }),
              HasSubstr("bits and scales must both be given"));
  EXPECT_EQ(cost(EncodeSigns{.x = x, .scales = scales, .counts = counts, .bits = bits}).bytes(),
            4 * 2048 + 8 + 8 + 256);
  const DecodeSigns decoded{
      .bits = bits, .scales = scales, .counts = counts, .keep = 0.5, .addend = x, .y = y};
  EXPECT_EQ(cost(decoded).bytes(), 3 * 4 * 2048 + 256 + 8 + 8);
  EXPECT_EQ(cost(decoded).flops, 3 * 2048);
}

}  // namespace signs_test
}  // namespace zinc::kernels
