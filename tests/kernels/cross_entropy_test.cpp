#include "kernels/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace cross_entropy_test {

using ::testing::HasSubstr;
using ::testing::ValuesIn;
using namespace zinc::test;

DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

HostArray labels_for(int64_t rows, int64_t classes, DType dtype) {
  HostArray labels({rows}, dtype);
  for (int64_t r = 0; r < rows; ++r) {
    labels.set(r, r % 4 == 3 ? static_cast<double>(kIgnoredLabel)
                             : static_cast<double>((r * 7919 + 5) % classes));
  }
  return labels;
}

struct Expected {
  double loss = 0.0;
  HostArray dlogits;  // of the unscaled loss
};

Expected expect(const HostArray& logits, const HostArray& labels, double smoothing = 0.0) {
  const int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  Expected e{.dlogits = HostArray({rows, classes}, DType::f64)};
  for (int64_t r = 0; r < rows; ++r) {
    const auto label = static_cast<int64_t>(labels.at(r));
    double sum = 0.0;
    long double loss = 0.0;  // over as many terms as classes: no rounding of this test's own
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits.at(r * classes + c));
    for (int64_t c = 0; c < classes; ++c) {
      const double p = std::exp(logits.at(r * classes + c)) / sum;
      const double target =
          (c == label ? 1.0 - smoothing : 0.0) + smoothing / static_cast<double>(classes);
      e.dlogits.set(r * classes + c, label < 0 ? 0.0 : p - target);
      if (label >= 0) loss += target * (std::log(sum) - logits.at(r * classes + c));
    }
    e.loss += static_cast<double>(loss);
  }
  return e;
}

TEST(CrossEntropy, SmoothedLabels_MatchTheDefinition) {
  for (const DType dtype : kFloatDTypes) {
    const DType wide = wide_of(dtype);
    const DeviceScope scope(device_for(dtype));
    CpuContext context;
    for (const int64_t classes : {1, 17, 1000, 5003}) {
      const HostArray logits = HostArray::random({9, classes}, dtype, 1, -6, 6).with_padding(3);
      const HostArray labels = labels_for(9, classes, DType::i32);
      for (const double smoothing : {0.1, 1.0}) {
        const Expected e = expect(logits, labels, smoothing);
        HostArray loss({}, wide), lse({9}, wide), dlogits({9, classes}, dtype);
        cross_entropy_forward(
            {.logits = logits, .labels = labels, .loss = loss, .lse = lse, .smoothing = smoothing},
            context.stream());
        // The terms without smoothing, and the sums over each of 9 rows, which lose up to an
        // epsilon of their size with each term.
        const double terms = 16 * 16 * 9 + 9 * static_cast<double>(classes);
        EXPECT_NEAR(loss.at(0), e.loss, terms * epsilon_of(wide)) << to_string(dtype) << classes;
        const HostArray dloss = HostArray::full({1}, wide, 4.0);
        cross_entropy_backward({.logits = logits,
                                .labels = labels,
                                .lse = lse,
                                .dloss = dloss,
                                .dlogits = dlogits,
                                .smoothing = smoothing},
                               context.stream());
        double off = 0.0, size = 0.0;
        for (int64_t i = 0; i < dlogits.numel(); ++i) {
          off += std::pow(dlogits.at(i) - 4.0 * e.dlogits.at(i), 2);
          size += std::pow(4.0 * e.dlogits.at(i), 2);
        }
        EXPECT_LE(std::sqrt(off),
                  (epsilon_of(dtype) + 32 * epsilon_of(wide)) * std::sqrt(size + 100))
            << to_string(dtype) << classes;
      }
    }
  }
}

class CrossEntropyOf : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, CrossEntropyOf, ValuesIn(kFloatDTypes),
                         [](const auto& test) { return to_string(test.param); });

TEST_P(CrossEntropyOf, LossAndGradient_MatchDefinition) {
  const DType dtype = GetParam(), wide = wide_of(dtype);
  const DeviceScope scope(device_for(dtype));
  CpuContext context;
  for (const int64_t classes : {1, 2, 17, 1000, 2049, 5003}) {
    for (const DType label_dtype : {DType::i64, DType::i32}) {
      const HostArray logits = HostArray::random({9, classes}, dtype, 1, -6, 6).with_padding(3);
      const HostArray labels = labels_for(9, classes, label_dtype);
      const Expected e = expect(logits, labels);
      HostArray loss({}, wide), lse({9}, wide),
          dlogits = HostArray::strided({9, classes}, dtype, 1);
      cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss, .lse = lse},
                            context.stream());
      // Rows: lse loses a few epsilons of its size (at most 6 + log(classes) < 16).
      const double rows = 8 * epsilon_of(wide);
      EXPECT_NEAR(loss.at(0), e.loss, rows * 16 * 9) << classes;
      const HostArray dloss = HostArray::full({1}, wide, 4.0);
      cross_entropy_backward(
          {.logits = logits, .labels = labels, .lse = lse, .dloss = dloss, .dlogits = dlogits},
          context.stream());
      double off = 0.0, size = 0.0;
      for (int64_t i = 0; i < dlogits.numel(); ++i) {
        off += std::pow(dlogits.at(i) - 4.0 * e.dlogits.at(i), 2);
        size += std::pow(4.0 * e.dlogits.at(i), 2);
      }
      // exp(x - lse): the argument (up to 20) is rounded, then the product once to dtype. With one
      // class the gradient is 0 up to the rounding of lse.
      EXPECT_LE(std::sqrt(off), (epsilon_of(dtype) + 32 * epsilon_of(wide)) * std::sqrt(size + 100))
          << classes;
      HostArray in_place = logits;
      cross_entropy_backward(
          {.logits = in_place, .labels = labels, .lse = lse, .dloss = dloss, .dlogits = in_place},
          context.stream());
      EXPECT_EQ(in_place.values(), dlogits.values());
    }
  }
}

// Classes in two slices of unequal sizes: their parts make up the loss and the gradient of all.
TEST_P(CrossEntropyOf, SlicesOfTheClasses_MakeUpTheWhole) {
  const DType dtype = GetParam(), wide = wide_of(dtype);
  const DeviceScope scope(device_for(dtype));
  CpuContext context;
  constexpr int64_t kRows = 9;
  for (const int64_t classes : {3, 17, 2049}) {
    for (const double smoothing : {0.0, 0.1}) {
      const HostArray all = HostArray::random({kRows, classes}, dtype, 1, -6, 6);
      const HostArray labels = labels_for(kRows, classes, DType::i32);
      const Expected e = expect(all, labels, smoothing);
      const int64_t cut = classes / 3;
      double loss = 0.0;
      std::vector<double> sums(kRows, 0.0);  // of exponentials
      HostArray slices[2] = {HostArray({kRows, cut}, dtype),
                             HostArray({kRows, classes - cut}, dtype)};
      const auto slice_of = [&](int64_t i) {
        return ClassSlice{.first = i == 0 ? 0 : cut, .total = classes};
      };
      for (int64_t i = 0; i < 2; ++i) {
        HostArray& logits = slices[i];
        const int64_t columns = logits.shape()[1];
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            logits.set(r * columns + c, all.at(r * classes + slice_of(i).first + c));
          }
        }
        HostArray part({}, wide), lse({kRows}, wide);
        cross_entropy_forward({.logits = logits,
                               .labels = labels,
                               .loss = part,
                               .lse = lse,
                               .smoothing = smoothing,
                               .slice = slice_of(i)},
                              context.stream());
        loss += part.at(0);
        for (int64_t r = 0; r < kRows; ++r) sums[static_cast<size_t>(r)] += std::exp(lse.at(r));
      }
      HostArray lse({kRows}, wide);
      for (int64_t r = 0; r < kRows; ++r) {
        const bool is_target = labels.at(r) >= 0;
        lse.set(r, is_target ? std::log(sums[static_cast<size_t>(r)]) : 0.0);
        if (is_target) loss += lse.at(r);
      }
      const double terms = 16 * 16 * 9 + 9 * static_cast<double>(classes);
      EXPECT_NEAR(loss, e.loss, terms * epsilon_of(wide)) << classes;
      const HostArray dloss = HostArray::full({1}, wide, 4.0);
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t columns = slices[i].shape()[1];
        HostArray dlogits({kRows, columns}, dtype);
        cross_entropy_backward({.logits = slices[i],
                                .labels = labels,
                                .lse = lse,
                                .dloss = dloss,
                                .dlogits = dlogits,
                                .smoothing = smoothing,
                                .slice = slice_of(i)},
                               context.stream());
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            const double expected = 4.0 * e.dlogits.at(r * classes + slice_of(i).first + c);
            ASSERT_NEAR(dlogits.at(r * columns + c), expected,
                        4 * epsilon_of(dtype) + 64 * 4 * epsilon_of(wide))
                << classes << " row " << r << " column " << c << " of slice " << i;
          }
        }
      }
    }
  }
}

TEST_P(CrossEntropyOf, IgnoredRows_CountNothing) {
  const DType dtype = GetParam(), wide = wide_of(dtype);
  const DeviceScope scope(device_for(dtype));
  CpuContext context;
  const HostArray logits = HostArray::random({3, 10}, dtype, 2);
  const HostArray labels = HostArray::full({3}, DType::i64, -100.0);
  HostArray loss({1}, wide), lse({3}, wide), dlogits({3, 10}, dtype);
  cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss, .lse = lse},
                        context.stream());
  const HostArray dloss = HostArray::full({1}, wide, 1.0);
  cross_entropy_backward(
      {.logits = logits, .labels = labels, .lse = lse, .dloss = dloss, .dlogits = dlogits},
      context.stream());
  EXPECT_EQ(loss.at(0), 0.0);
  EXPECT_EQ(lse.values(), std::vector<double>(3, 0.0));
  EXPECT_EQ(dlogits.values(), std::vector<double>(30, 0.0));
}

TEST(CrossEntropy, F64Gradient_MatchesCentralDifferences) {
  const DeviceScope scope(kCpu);
  CpuContext context;
  const HostArray logits = HostArray::random({5, 13}, DType::f64, 3, -2, 2);
  const HostArray labels = labels_for(5, 13, DType::i64);
  const auto loss_of = [&](const HostArray& x) {
    HostArray loss({1}, DType::f64);
    cross_entropy_forward({.logits = x, .labels = labels, .loss = loss}, context.stream());
    return loss.at(0);
  };
  HostArray loss({1}, DType::f64), lse({5}, DType::f64), dlogits({5, 13}, DType::f64);
  cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss, .lse = lse},
                        context.stream());
  const HostArray dloss = HostArray::full({1}, DType::f64, 1.0);
  cross_entropy_backward(
      {.logits = logits, .labels = labels, .lse = lse, .dloss = dloss, .dlogits = dlogits},
      context.stream());
  for (int64_t i = 0; i < logits.numel(); ++i) {
    HostArray up = logits, down = logits;
    up.set(i, logits.at(i) + 1e-5);
    down.set(i, logits.at(i) - 1e-5);
    EXPECT_NEAR(dlogits.at(i), (loss_of(up) - loss_of(down)) / 2e-5, 1e-9);
  }
}

// A probability of 2^-30 is below the smallest f16 number, 2^-24, unless the scale comes first.
TEST(CrossEntropy, LossScale_IsAppliedBeforeRoundingToF16) {
  CpuContext context;
  const double gap = 30 * std::log(2.0);
  const HostArray logits = HostArray::of({gap, 0.0}, {1, 2}, DType::f16);
  const HostArray labels = HostArray::of({0.0}, {1}, DType::i64);
  HostArray loss({1}, DType::f32), lse({1}, DType::f32), dlogits({1, 2}, DType::f16);
  cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss, .lse = lse},
                        context.stream());
  const HostArray dloss = HostArray::full({1}, DType::f32, 65536.0);
  cross_entropy_backward(
      {.logits = logits, .labels = labels, .lse = lse, .dloss = dloss, .dlogits = dlogits},
      context.stream());
  EXPECT_NEAR(dlogits.at(1), 0x1p-14, 0x1p-14 * 0.01);  // the logit is rounded: 20.797
}

TEST(CrossEntropy, Bits_DoNotDependOnThreads) {
  for (const DType dtype : kFloatDTypes) {
    const DeviceScope scope(device_for(dtype));
    const auto run = [&](StreamRef stream) {
      const DType wide = wide_of(dtype);
      const HostArray logits = HostArray::random({33, 2100}, dtype, 4, -5, 5);
      const HostArray labels = labels_for(33, 2100, DType::i32);
      HostArray loss({}, wide), lse({33}, wide), dlogits({33, 2100}, dtype);
      cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss, .lse = lse}, stream);
      cross_entropy_backward(
          {.logits = logits, .labels = labels, .lse = lse, .dloss = loss, .dlogits = dlogits},
          stream);
      return std::vector<HostArray>{loss, lse, dlogits};
    };
    EXPECT_TRUE(same_bits_for_contexts(run, kNumSchedules));
  }
}

TEST(CrossEntropy, WrongArguments_AreNamed) {
  CpuContext context;
  const HostArray logits({4, 6}, DType::bf16), labels({4}, DType::i64), few({3}, DType::i64);
  HostArray loss({1}, DType::f32), half_loss({1}, DType::bf16);
  const auto message = [&](const ConstView& the_labels, const View& the_loss) {
    return message_of_invalid([&] {
      cross_entropy_forward({.logits = logits, .labels = the_labels, .loss = the_loss},
                            context.stream());
    });
  };
  EXPECT_THAT(message(few, loss), HasSubstr("labels must have shape [4]"));
  EXPECT_THAT(message(logits, loss), HasSubstr("labels must be i32 or i64"));
  EXPECT_THAT(message(labels, half_loss), HasSubstr("loss must be f32"));
  EXPECT_THAT(message(labels, {}), HasSubstr("loss is missing"));
}

TEST(CrossEntropy, LabelsOutsideTheClasses_AreNamed) {
  CpuContext context;
  const HostArray logits = HostArray::random({4, 6}, DType::f32, 5);
  HostArray loss({1}, DType::f32);
  for (const double wrong : {6.0, -1.0, -101.0}) {
    const HostArray labels = HostArray::of({0, 1, wrong, 3}, {4}, DType::i64);
    if (runs_on_cuda()) {  // Note [Indices outside their range on a GPU]
      cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss}, context.stream());
      EXPECT_TRUE(std::isnan(loss.at(0)));
      continue;
    }
    EXPECT_THAT(message_of_invalid([&] {
                  cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss},
                                        context.stream());
                }),
                HasSubstr(str("label ", static_cast<int64_t>(wrong), " of row 2")));
  }
}

// The loss is the f64 sum of the rows' losses in their order.
TEST(CrossEntropy, ManyRows_AddUpInTheirOrder) {
  CpuContext context;
  const HostArray logits = HostArray::random({700, 3}, DType::f32, 6, -4, 4);
  const HostArray labels = labels_for(700, 3, DType::i32);
  HostArray loss({1}, DType::f32), lse({700}, DType::f32);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    set_schedule_seed(seed);
    cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss, .lse = lse},
                          context.stream());
    double sum = 0.0;
    for (int64_t r = 0; r < 700; ++r) {
      const auto label = static_cast<int64_t>(labels.at(r));
      if (label >= 0) sum += lse.at(r) - logits.at(r * 3 + label);
    }
    ASSERT_EQ(loss.at(0), double(float(sum)));
  }
}

TEST(CrossEntropy, NoRows_GiveNoLoss) {
  CpuContext context;
  const HostArray logits({0, 6}, DType::f32), labels({0}, DType::i64);
  HostArray loss({1}, DType::f32);
  cross_entropy_forward({.logits = logits, .labels = labels, .loss = loss}, context.stream());
  EXPECT_EQ(loss.at(0), 0.0);
}

}  // namespace cross_entropy_test
}  // namespace zinc::kernels
