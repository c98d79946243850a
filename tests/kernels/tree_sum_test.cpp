#include "kernels/tree_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace tree_sum_test {

using test::HostArray;
using testing::HasSubstr;

// The specification read literally: for width 1, 2, 4, ... node r takes node r + width.
template <class T>
T tree(std::vector<T> leaf) {
  for (size_t width = 1; width < leaf.size(); width *= 2) {
    for (size_t r = 0; r + width < leaf.size(); r += 2 * width) leaf[r] = leaf[r] + leaf[r + width];
  }
  return leaf[0];
}

HostArray expected_sum(const HostArray& in, DType out_dtype, const HostArray* before) {
  const int64_t count = in.shape()[0];
  const int64_t n = in.shape()[1];
  HostArray out(Shape{n}, out_dtype);
  for (int64_t i = 0; i < n; ++i) {
    if (in.dtype() == DType::f64) {
      std::vector<double> leaf;
      for (int64_t r = 0; r < count; ++r) leaf.push_back(in.at(r * n + i));
      out.set(i, before == nullptr ? tree(leaf) : before->at(i) + tree(leaf));
    } else {
      std::vector<float> leaf;
      for (int64_t r = 0; r < count; ++r) leaf.push_back(static_cast<float>(in.at(r * n + i)));
      const float sum = tree(leaf);
      out.set(i, static_cast<double>(before == nullptr ? sum
                                                       : static_cast<float>(before->at(i)) + sum));
    }
  }
  return out;
}

TEST(TreeSum, AnyCountAndSize_EqualsTheTreeOfIndicesBitForBit) {
  for (const DType dtype : test::kFloatDTypes) {
    const test::DeviceScope scope(test::device_for(dtype));
    for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 64, 100}) {
      for (const int64_t n : {1, 3, 17, 511, 513, 1025}) {
        const HostArray in = HostArray::random(Shape{count, n}, dtype, 1).with_padding(n % 3);
        for (const bool wide : {false, true}) {
          if (wide && dtype == DType::f64) continue;
          const DType out_dtype = wide ? DType::f32 : dtype;
          for (const bool accumulate : {false, true}) {
            HostArray out = HostArray::random(Shape{n}, out_dtype, 2);
            const HostArray expected = expected_sum(in, out_dtype, accumulate ? &out : nullptr);
            tree_sum({.in = in, .out = out, .accumulate = accumulate}, test::test_stream());
            ASSERT_TRUE(test::same_bits(out, expected))
                << name_of(dtype) << " count " << count << " n " << n << " wide " << wide;
          }
        }
      }
    }
  }
}

TEST(TreeSum, AbsentLeaf_IsSkippedAndNotAddedAsZero) {
  // -0 + 0 would be +0.
  const HostArray in = HostArray::full(Shape{3, 5}, DType::f32, -0.0);
  HostArray out(Shape{5}, DType::f32);
  tree_sum({.in = in, .out = out}, test::test_stream());
  EXPECT_TRUE(test::same_bits(out, HostArray::full(Shape{5}, DType::f32, -0.0)));
}

TEST(TreeSum, LongArray_SameBitsForAllThreadCountsAndSplits) {
  const int64_t n = 200'001;
  const HostArray in = HostArray::random(Shape{5, n}, DType::bf16, 3);
  HostArray whole(Shape{n}, DType::f32);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    tree_sum({.in = in, .out = whole}, test::test_stream());
    return std::vector<HostArray>{whole};
  }));
  HostArray parts(Shape{n}, DType::f32);
  for (int64_t begin = 0; begin < n; begin += 30'011) {
    const int64_t length = std::min<int64_t>(30'011, n - begin);
    tree_sum(
        {.in = in.view().narrow(1, begin, length), .out = parts.view().narrow(0, begin, length)},
        test::test_stream());
  }
  EXPECT_TRUE(test::same_bits(parts, whole));
}

TEST(TreeSum, OutputIsARowOfTheInput) {
  for (const int64_t row : {0, 1, 2}) {
    const HostArray in = HostArray::random(Shape{3, 1000}, DType::f32, 4);
    const HostArray expected = expected_sum(in, DType::f32, nullptr);
    HostArray inout = in;
    const View out = inout.view().narrow(0, row, 1).reshape(Shape{1000});
    tree_sum({.in = inout, .out = out}, test::test_stream());
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(inout.at(row * 1000 + i), expected.at(i));
  }
}

template <class T, class Out>
void expect_sum_on_host(size_t count, size_t n, bool accumulate) {
  // Apart, in falling order, at addresses that are multiples of the element's size only.
  std::vector<T> memory(count * (n + 3));
  std::vector<const std::byte*> in(count);
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = T(static_cast<AccumulatorOf<T>>(static_cast<int>(i * 37 % 101) - 50) / 7);
  }
  const auto start = [&](size_t r) { return memory.data() + (count - 1 - r) * (n + 3) + 1; };
  for (size_t r = 0; r < count; ++r) in[r] = reinterpret_cast<const std::byte*>(start(r));
  std::vector<Out> out(n + 2, Out(AccumulatorOf<T>{3}));
  const auto value = [](Out element) { return static_cast<AccumulatorOf<Out>>(element); };
  tree_sum_on_host({.in = in,
                    .dtype = kDTypeOf<T>,
                    .n = static_cast<int64_t>(n),
                    .out = reinterpret_cast<std::byte*>(out.data() + 1),
                    .out_dtype = kDTypeOf<Out>,
                    .accumulate = accumulate});
  for (size_t i = 0; i < n; ++i) {
    std::vector<AccumulatorOf<T>> leaf;
    for (size_t r = 0; r < count; ++r) leaf.push_back(static_cast<AccumulatorOf<T>>(start(r)[i]));
    const auto sum = tree(leaf) + (accumulate ? AccumulatorOf<T>{3} : AccumulatorOf<T>{0});
    ASSERT_EQ(value(out[i + 1]), value(Out(sum)))
        << name_of(kDTypeOf<T>) << " count " << count << " n " << n << " at " << i;
  }
  EXPECT_EQ(value(out.front()), 3);
  EXPECT_EQ(value(out.back()), 3);
}

TEST(HostTreeSum, OfArraysAnywhere_EqualsTheTreeOfIndices) {
  for (const size_t count : {1, 2, 3, 4, 5, 8, 11}) {
    for (const size_t n : {1, 17, 511, 1025}) {
      for (const bool accumulate : {false, true}) {
        expect_sum_on_host<double, double>(count, n, accumulate);
        expect_sum_on_host<float, float>(count, n, accumulate);
        expect_sum_on_host<bf16, bf16>(count, n, accumulate);
        expect_sum_on_host<bf16, float>(count, n, accumulate);
        expect_sum_on_host<f16, f16>(count, n, accumulate);
      }
    }
  }
}

TEST(TreeSum, NoElements_DoesNothing) {
  HostArray in(Shape{3, 0}, DType::f32);
  HostArray out(Shape{0}, DType::f32);
  tree_sum({.in = in, .out = out}, test::test_stream());
}

TEST(TreeSum, BadArguments_NameWhatIsWrong) {
  HostArray in(Shape{2, 8}, DType::bf16);
  HostArray out(Shape{8}, DType::bf16);
  HostArray other(Shape{8}, DType::f16);
  HostArray narrow(Shape{7}, DType::bf16);
  HostArray none(Shape{0, 8}, DType::bf16);
  const auto message = [&](const TreeSum& args) {
    return test::message_of_invalid([&] { tree_sum(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.in = in, .out = other}), HasSubstr("out must be bf16 or f32, not f16"));
  EXPECT_THAT(message({.in = in, .out = narrow}), HasSubstr("shape [8], not [7]"));
  EXPECT_THAT(message({.in = none, .out = out}), HasSubstr("1 to 1024 arrays, not 0"));
  EXPECT_THAT(message({.in = out, .out = out}), HasSubstr("two dimensions"));
  EXPECT_THAT(message({.in = in, .out = {}}), HasSubstr("out is missing"));
  EXPECT_THAT(message({.in = in, .out = in.view().reshape(Shape{16}).narrow(0, 4, 8)}),
              HasSubstr("must not overlap"));
  const View host(out.view().data(), DType::bf16, Shape{8}, kCpu, Tier::pinned_host);
  EXPECT_THAT(message({.in = in, .out = host}), HasSubstr("tier"));
}

TEST(TreeSum, MetaDevice_TouchesNoMemory) {
  const Device meta{.kind = DeviceKind::cpu, .index = 0, .meta = true};
  void* nowhere = reinterpret_cast<void*>(64);
  tree_sum({.in = ConstView(nowhere, DType::f32, Shape{4, 1000}, meta),
            .out = View(nowhere, DType::f32, Shape{1000}, meta)},
           test::test_stream());
}

TEST(TreeSum, Cost_CountsCompulsoryBytes) {
  HostArray in(Shape{3, 10}, DType::bf16);
  HostArray out(Shape{10}, DType::f32);
  const Cost overwrite = cost(TreeSum{.in = in, .out = out});
  EXPECT_EQ(overwrite.bytes_read, 60);
  EXPECT_EQ(overwrite.bytes_written, 40);
  EXPECT_EQ(overwrite.flops, 20);
  EXPECT_EQ(cost(TreeSum{.in = in, .out = out, .accumulate = true}).bytes_read, 100);
}

}  // namespace tree_sum_test
}  // namespace zinc::kernels
