#include "kernels/linear_cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gemm.h"
#include "tests/kernels/cpu_context.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace linear_cross_entropy_test {

using ::testing::HasSubstr;
using ::testing::ValuesIn;
using namespace zinc::test;

DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// Inputs and results of one head.
struct Head {
  int64_t N, C, V;
  int64_t chunk_bytes = 0;
  bool narrow_logits = false;
  DType dtype, wide;
  HostArray hidden, weight, bias, labels, loss, lse, dhidden, dweight, dbias;

  Head(int64_t n, int64_t c, int64_t v, DType type, DType gradient_dtype)
      : N(n), C(c), V(v), dtype(type), wide(wide_of(type)) {
    hidden = HostArray::random({N, C}, dtype, 1, -2, 2).with_padding(3);
    weight = HostArray::random({V, C}, dtype, 2);
    bias = HostArray::random({V}, dtype, 3);
    labels = HostArray({N}, DType::i64);
    for (int64_t r = 0; r < N; ++r) {
      labels.set(r, r % 5 == 4 ? -100.0 : static_cast<double>((r * 7919 + 3) % V));
    }
    loss = HostArray({1}, wide);
    lse = HostArray({N}, wide);
    dhidden = HostArray({N, C}, dtype);
    dweight = HostArray({V, C}, gradient_dtype);
    dbias = HostArray({V}, gradient_dtype);
  }
  Head(int64_t n, int64_t c, int64_t v, DType type) : Head(n, c, v, type, type) {}

  void forward(StreamRef stream) {
    linear_cross_entropy_forward({.hidden = hidden,
                                  .weight = weight,
                                  .bias = bias,
                                  .labels = labels,
                                  .loss = loss,
                                  .lse = lse,
                                  .narrow_logits = narrow_logits,
                                  .chunk_bytes = chunk_bytes},
                                 stream);
  }
  void backward(double scale, bool accumulate, StreamRef stream) {
    const HostArray dloss = HostArray::full({1}, wide, scale);
    linear_cross_entropy_backward({.hidden = hidden,
                                   .weight = weight,
                                   .bias = bias,
                                   .labels = labels,
                                   .lse = lse,
                                   .dloss = dloss,
                                   .dhidden = dhidden,
                                   .dweight = dweight,
                                   .dbias = dbias,
                                   .accumulate_dweight = accumulate,
                                   .narrow_logits = narrow_logits,
                                   .chunk_bytes = chunk_bytes},
                                  stream);
  }
  void with_gradient(double scale, bool accumulate, StreamRef stream) {
    linear_cross_entropy_with_gradient({.hidden = hidden,
                                        .weight = weight,
                                        .bias = bias,
                                        .labels = labels,
                                        .loss = loss,
                                        .dhidden = dhidden,
                                        .dweight = dweight,
                                        .dbias = dbias,
                                        .accumulate_dweight = accumulate,
                                        .loss_scale = scale,
                                        .narrow_logits = narrow_logits,
                                        .chunk_bytes = chunk_bytes},
                                       stream);
  }
  Head in_f64() const {
    Head other(N, C, V, DType::f64);
    other.hidden = hidden.as(DType::f64);
    other.weight = weight.as(DType::f64);
    other.bias = bias.as(DType::f64);
    return other;
  }
};

// The head as separate ops in f64: logits of all rows, then cross_entropy.
void compose(Head& head, double scale, StreamRef stream) {
  const DeviceScope scope(kCpu);
  HostArray logits({head.N, head.V}, DType::f64);
  gemm({.a = head.hidden, .b = head.weight, .bias = head.bias, .c = logits, .transpose_b = true},
       stream);
  cross_entropy_forward(
      {.logits = logits, .labels = head.labels, .loss = head.loss, .lse = head.lse}, stream);
  const HostArray dloss = HostArray::full({1}, DType::f64, scale);
  cross_entropy_backward(
      {.logits = logits, .labels = head.labels, .lse = head.lse, .dloss = dloss, .dlogits = logits},
      stream);
  gemm({.a = logits, .b = head.weight, .c = head.dhidden}, stream);
  gemm({.a = logits, .b = head.hidden, .c = head.dweight, .transpose_a = true}, stream);
  for (int64_t c = 0; c < head.V; ++c) {
    double sum = 0.0;
    for (int64_t r = 0; r < head.N; ++r) sum += logits.at(r * head.V + c);
    head.dbias.set(c, sum);
  }
}

// dlogits are rounded to dtype once and the result once; sums in f32.
double tolerance(DType dtype, int64_t k) {
  return 2 * epsilon_of(dtype) + 8 * epsilon_of(wide_of(dtype)) * std::sqrt(static_cast<double>(k));
}

class HeadOf : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, HeadOf, ValuesIn(kFloatDTypes),
                         [](const auto& test) { return to_string(test.param); });

TEST_P(HeadOf, OneChunk_MatchesTheSeparateOps) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  CpuContext context;
  for (const double scale : {1.0, 1024.0}) {
    Head head(50, 24, 700, dtype), exact = head.in_f64(), recomputed = head;
    compose(exact, scale, context.stream());
    head.with_gradient(scale, false, context.stream());
    recomputed.forward(context.stream());
    EXPECT_TRUE(same_bits(head.loss, recomputed.loss));
    EXPECT_LE(std::abs(head.loss.at(0) / exact.loss.at(0) - 1.0), tolerance(head.wide, 24));
    EXPECT_LE(relative_l2(recomputed.lse, exact.lse), tolerance(head.wide, 24));
    recomputed.backward(scale, false, context.stream());
    for (const Head* got : {&head, &recomputed}) {
      EXPECT_LE(relative_l2(got->dhidden, exact.dhidden), tolerance(dtype, 700));
      EXPECT_LE(relative_l2(got->dweight, exact.dweight), tolerance(dtype, 50));
      EXPECT_LE(relative_l2(got->dbias, exact.dbias), tolerance(dtype, 50));
    }
  }
}

TEST_P(HeadOf, AccumulatedGradients_AreAdded) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  CpuContext context;
  Head fresh(50, 24, 300, dtype, wide_of(dtype)), added(50, 24, 300, dtype, dtype);
  fresh.with_gradient(1.0, false, context.stream());
  added.dweight.set_all(0.5);
  added.dbias.set_all(0.5);
  added.with_gradient(1.0, true, context.stream());
  HostArray expected = fresh.dweight, expected_bias = fresh.dbias;
  for (int64_t i = 0; i < expected.numel(); ++i) expected.set(i, expected.at(i) + 0.5);
  for (int64_t i = 0; i < 300; ++i) expected_bias.set(i, expected_bias.at(i) + 0.5);
  EXPECT_LE(relative_l2(added.dweight, expected),
            1.5 * epsilon_of(dtype) + 8 * epsilon_of(fresh.wide));
  EXPECT_LE(relative_l2(added.dbias, expected_bias),
            1.5 * epsilon_of(dtype) + 8 * epsilon_of(fresh.wide));
}

// A probability is off by as much as its logit.
TEST_P(HeadOf, NarrowLogits_AreRoundedOnce) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  CpuContext context;
  Head head(130, 24, 700, dtype), exact = head.in_f64();
  compose(exact, 8.0, context.stream());
  head.narrow_logits = true;
  head.chunk_bytes = 64 * 700 * size_of(dtype);  // 64 rows, 64 and 2
  Head recomputed = head, wide = head;
  wide.narrow_logits = false;
  head.with_gradient(8.0, false, context.stream());
  wide.with_gradient(8.0, false, context.stream());
  recomputed.forward(context.stream());
  recomputed.backward(8.0, false, context.stream());
  EXPECT_TRUE(same_bits(head.loss, recomputed.loss));
  EXPECT_EQ(same_bits(head.loss, wide.loss), dtype == wide_of(dtype));
  constexpr double kLargestLogit = 24;  // rounded by at most this times epsilon
  const double off = kLargestLogit * epsilon_of(dtype);
  EXPECT_LE(std::abs(head.loss.at(0) / exact.loss.at(0) - 1.0), off + tolerance(head.wide, 24));
  EXPECT_LE(relative_l2(recomputed.lse, exact.lse), off + tolerance(head.wide, 24));
  for (const Head* got : {&head, &recomputed}) {
    EXPECT_LE(relative_l2(got->dhidden, exact.dhidden), off + tolerance(dtype, 700));
    EXPECT_LE(relative_l2(got->dweight, exact.dweight), off + tolerance(dtype, 130));
    EXPECT_LE(relative_l2(got->dbias, exact.dbias), off + tolerance(dtype, 130));
  }
}

// Chunks of 64, 64 and 2 rows; 16-bit sums over chunks are rounded once.
TEST_P(HeadOf, SeveralChunks_MatchF64) {
  const DType dtype = GetParam();
  const DeviceScope scope(device_for(dtype));
  CpuContext context;
  Head head(130, 4, 5000, dtype), exact = head.in_f64();
  compose(exact, 8.0, context.stream());
  Head recomputed = head;
  for (Head* tested : {&head, &recomputed}) {
    tested->chunk_bytes = 64 * 5000 * size_of(head.wide);
    tested->dweight.set_all(0.0);
    tested->dbias.set_all(0.0);
  }
  head.with_gradient(8.0, true, context.stream());
  recomputed.forward(context.stream());
  recomputed.backward(8.0, true, context.stream());
  for (const Head* got : {&head, &recomputed}) {
    EXPECT_LE(std::abs(got->loss.at(0) / exact.loss.at(0) - 1.0), tolerance(head.wide, 4));
    EXPECT_LE(relative_l2(got->dhidden, exact.dhidden), tolerance(dtype, 5000));
    EXPECT_LE(relative_l2(got->dweight, exact.dweight), tolerance(dtype, 130));
    EXPECT_LE(relative_l2(got->dbias, exact.dbias), tolerance(dtype, 130));
  }
}

TEST(LinearCrossEntropy, LogitsOfTheWholeBatch_NeverExist) {
  Context context(ContextOptions{.num_threads = 2});
  ContextScope scope(context);
  Head head(600, 4, 100000, DType::bf16);  // logits in f32: 240 MB
  head.chunk_bytes = int64_t{32} << 20;
  head.forward(context.compute());
  const int64_t peak = context.allocator().report().at(Tier::device, Label::workspace).peak;
  EXPECT_LT(peak, int64_t{100} << 20);
  EXPECT_EQ(head_chunk_bytes(kCpu), int64_t{128} << 20);
  EXPECT_EQ(head_chunk_bytes({.kind = DeviceKind::cuda}), int64_t{1} << 30);
}

TEST(LinearCrossEntropy, F64Gradients_MatchCentralDifferences) {
  const DeviceScope scope(kCpu);
  CpuContext context;
  Head head(6, 5, 11, DType::f64);
  head.with_gradient(1.0, false, context.stream());
  const auto check = [&](HostArray& input, const HostArray& gradient, const char* name) {
    for (int64_t i = 0; i < input.numel(); ++i) {
      const double before = input.at(i), h = 1e-5;
      const auto loss = [&](double value) {
        input.set(i, value);
        head.forward(context.stream());
        return head.loss.at(0);
      };
      const double slope = (loss(before + h) - loss(before - h)) / (2 * h);
      input.set(i, before);
      EXPECT_NEAR(gradient.at(i), slope, 1e-8) << name << " " << i;
    }
  };
  check(head.hidden, head.dhidden, "hidden");
  check(head.weight, head.dweight, "weight");
  check(head.bias, head.dbias, "bias");
}

TEST(LinearCrossEntropy, Bits_DoNotDependOnThreads) {
  for (const DType dtype : kShortFloatDTypes) {
    EXPECT_TRUE(same_bits_for_contexts([&](StreamRef stream) {
      Head head(90, 40, 1000, dtype);
      head.with_gradient(2.0, false, stream);
      head.forward(stream);
      return std::vector<HostArray>{head.loss, head.lse, head.dhidden, head.dweight, head.dbias};
    })) << to_string(dtype);
  }
}

TEST(LinearCrossEntropy, ScaleOnTheDevice_GivesTheBitsOfOneByValue) {
  for (const DType dtype : kShortFloatDTypes) {
    CpuContext context;
    Head head(20, 8, 50, dtype), other = head;
    const float scale = 1000.0f / 7;
    head.with_gradient(scale, false, context.stream());
    const HostArray on_device = HostArray::full({1}, DType::f32, scale);
    linear_cross_entropy_with_gradient({.hidden = other.hidden,
                                        .weight = other.weight,
                                        .bias = other.bias,
                                        .labels = other.labels,
                                        .loss = other.loss,
                                        .dhidden = other.dhidden,
                                        .dweight = other.dweight,
                                        .dbias = other.dbias,
                                        .device_loss_scale = on_device},
                                       context.stream());
    EXPECT_TRUE(same_bits(other.loss, head.loss));
    EXPECT_TRUE(same_bits(other.dhidden, head.dhidden));
    EXPECT_TRUE(same_bits(other.dweight, head.dweight));
    EXPECT_TRUE(same_bits(other.dbias, head.dbias));
  }
}

TEST(LinearCrossEntropy, GradientsThatAreNotAsked_AreNotNeeded) {
  CpuContext context;
  Head head(20, 8, 50, DType::f32), all = head;
  all.with_gradient(1.0, false, context.stream());
  linear_cross_entropy_with_gradient({.hidden = head.hidden,
                                      .weight = head.weight,
                                      .bias = head.bias,
                                      .labels = head.labels,
                                      .loss = head.loss,
                                      .dhidden = head.dhidden},
                                     context.stream());
  EXPECT_TRUE(same_bits(head.dhidden, all.dhidden));
  linear_cross_entropy_with_gradient({.hidden = head.hidden,
                                      .weight = head.weight,
                                      .bias = head.bias,
                                      .labels = head.labels,
                                      .loss = head.loss,
                                      .dweight = head.dweight},
                                     context.stream());
  EXPECT_TRUE(same_bits(head.dweight, all.dweight));
}

TEST(LinearCrossEntropy, NoRows_GiveZeroGradients) {
  CpuContext context;
  Head head(0, 4, 7, DType::bf16);
  head.with_gradient(1.0, false, context.stream());
  EXPECT_EQ(head.loss.at(0), 0.0);
  EXPECT_EQ(head.dweight.values(), std::vector<double>(28, 0.0));
  EXPECT_EQ(head.dbias.values(), std::vector<double>(7, 0.0));
}

TEST(LinearCrossEntropy, WrongArguments_AreNamed) {
  CpuContext context;
  Head head(5, 4, 7, DType::f32);
  const auto message = [&](const std::function<void(LinearCrossEntropyWithGradient&)>& change) {
    LinearCrossEntropyWithGradient args{.hidden = head.hidden,
                                        .weight = head.weight,
                                        .labels = head.labels,
                                        .loss = head.loss,
                                        .dhidden = head.dhidden,
                                        .dweight = head.dweight};
    change(args);
    return message_of_invalid([&] { linear_cross_entropy_with_gradient(args, context.stream()); });
  };
  EXPECT_THAT(message([&](auto& a) {
                a.weight = head.hidden;
                a.dweight = {};
                a.hidden = head.labels;
              }),
              HasSubstr("hidden must be f64"));
  EXPECT_THAT(message([&](auto& a) { a.weight = head.bias; }), HasSubstr("weight must have 2"));
  EXPECT_THAT(message([&](auto& a) { a.dweight = head.dhidden; }),
              HasSubstr("dweight must have shape"));
  EXPECT_THAT(message([&](auto& a) { a.dbias = head.dbias; }), HasSubstr("dbias needs bias"));
  EXPECT_THAT(message([&](auto& a) { a.loss = {}; }), HasSubstr("loss is missing"));
  EXPECT_THAT(message([&](auto& a) { a.device_loss_scale = head.labels; }),
              HasSubstr("device_loss_scale must be f32"));
  EXPECT_THAT(message([&](auto& a) { a.labels = head.bias; }),
              HasSubstr("labels must be i32 or i64"));
}

TEST(LinearCrossEntropy, Cost_CountsThreeProducts) {
  Head head(5, 4, 7, DType::bf16);
  const Cost forward = cost(LinearCrossEntropyForward{
      .hidden = head.hidden, .weight = head.weight, .labels = head.labels, .loss = head.loss});
  const Cost all = cost(LinearCrossEntropyWithGradient{.hidden = head.hidden,
                                                       .weight = head.weight,
                                                       .labels = head.labels,
                                                       .loss = head.loss,
                                                       .dhidden = head.dhidden,
                                                       .dweight = head.dweight});
  EXPECT_EQ(forward.flops, 2 * 5 * 4 * 7 + 4 * 5 * 7);
  EXPECT_EQ(all.flops, 3 * 2 * 5 * 4 * 7 + 7 * 5 * 7);
  EXPECT_EQ(forward.bytes_read, 2 * (20 + 28) + 40);
}

}  // namespace linear_cross_entropy_test
}  // namespace zinc::kernels
