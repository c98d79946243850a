#include "kernels/norm_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/element_update.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace norm_rate_test {

using test::HostArray;
using testing::HasSubstr;

constexpr int64_t kValues = 4;

std::vector<float> run(NormRate args, const std::vector<double>& sums) {
  const HostArray in = HostArray::of(sums, Shape{static_cast<int64_t>(sums.size())}, DType::f64);
  HostArray out(Shape{kValues}, DType::f32);
  args.sums = in;
  args.values = out;
  norm_rate(args, test::test_stream());
  std::vector<float> values(kValues);
  std::memcpy(values.data(), out.bytes().data(), kValues * sizeof(float));
  return values;
}

// What an update with this rate on the host has.
std::vector<float> values_of(double rate, const NormRate& args) {
  std::vector<float> values(kValues);
  update_values({.rule = UpdateRule::sgdw,
                 .constants = {.lr = rate, .weight_decay = args.weight_decay},
                 .random = {.counter_high = args.counter_high}},
                values);
  return values;
}

void expect_rate(double rate, const NormRate& args, const std::vector<double>& sums) {
  const std::vector<float> wanted = values_of(rate, args);
  EXPECT_EQ(std::memcmp(run(args, sums).data(), wanted.data(), kValues * sizeof(float)), 0) << rate;
  // The same with the step's numbers on the device.
  std::vector<float> numbers(kNormRateGiven);
  norm_rate_given(args, numbers);
  HostArray given(Shape{kNormRateGiven}, DType::f32);
  std::memcpy(given.on_host().data(), numbers.data(), numbers.size() * sizeof(float));
  NormRate by_device = args;
  by_device.lr = 1e9;
  by_device.weight_decay = -3.0;
  by_device.counter_high = 17;
  by_device.given = given;
  EXPECT_EQ(std::memcmp(run(by_device, sums).data(), wanted.data(), kValues * sizeof(float)), 0)
      << rate;
}

TEST(NormRate, TwoSums_ScaleByTheRatioOfTheNorms) {
  const NormRate args{.numel = 1000,
                      .least = 0.25,
                      .most = 10.0,
                      .lr = 1.1e-3,
                      .weight_decay = 0.1,
                      .counter_high = 0xfedcba9812345678u};
  for (const double w : {0.3, 7.7, 123.456}) {
    for (const double d : {0.11, 5.5, 1e4}) {
      expect_rate(1.1e-3 * std::clamp(std::sqrt(w / d), 0.25, 10.0), args, {w, d});
    }
  }
  expect_rate(1.1e-3, args, {0.0, 2.0});
  expect_rate(1.1e-3, args, {2.0, 0.0});
  NormRate narrow = args;
  narrow.least = 2.0;
  expect_rate(1.1e-3, narrow, {0.0, 2.0});
  expect_rate(2.2e-3, narrow, {2.0, 2.0});
}

TEST(NormRate, OneSum_ScalesByTheRootOfTheMean) {
  const NormRate args{.numel = 37, .least = 1e-3, .lr = 0.7, .weight_decay = 0.01};
  expect_rate(0.7 * std::sqrt(5.3 / 37.0), args, {5.3});
  expect_rate(0.7 * 1e-3, args, {1e-9});
  expect_rate(0.7 * 1e-3, args, {0.0});
}

TEST(NormRate, InF64_IsNotRounded) {
  const test::DeviceScope scope(test::device_for(DType::f64));
  const HostArray sums = HostArray::of({2.0, 3.0}, Shape{2}, DType::f64);
  HostArray values(Shape{kValues}, DType::f64);
  norm_rate({.sums = sums, .lr = 0.1, .weight_decay = 0.3, .values = values}, test::test_stream());
  EXPECT_EQ(values.at(0), -(0.1 * std::sqrt(2.0 / 3.0)));
  EXPECT_EQ(values.at(1), -(0.1 * std::sqrt(2.0 / 3.0)) * 0.3);
}

TEST(NormRate, BadArgumentsCostAndMetaDevice) {
  HostArray sums(Shape{2}, DType::f64), three(Shape{3}, DType::f64);
  HostArray values(Shape{kValues}, DType::f32);
  const auto message = [&](const NormRate& args) {
    return test::message_of_invalid([&] { norm_rate(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.sums = three, .values = values}), HasSubstr("one sum or two, not [3]"));
  EXPECT_THAT(message({.sums = sums, .numel = 0, .values = values}),
              HasSubstr("a parameter has elements, not 0"));
  EXPECT_THAT(message({.sums = sums, .least = 2.0, .most = 1.0, .values = values}),
              HasSubstr("the bounds 2 and 1 have nothing between them"));
  EXPECT_THAT(message({.sums = sums, .values = three}), HasSubstr("values must have shape [4]"));
  EXPECT_EQ(cost(NormRate{.sums = sums, .values = values}).bytes(), 16 + 16);
  norm_rate({.sums = test::meta_view(Shape{1}, DType::f64),
             .values = test::meta_view(Shape{kValues}, DType::f32, 2)},
            test::test_stream());
}

}  // namespace norm_rate_test
}  // namespace zinc::kernels
