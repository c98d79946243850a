#include "kernels/sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace sgd_test {

using test::HostArray;
using testing::HasSubstr;

template <class A>
void expect_step(const Sgd& args, const HostArray& w_before, const HostArray& u_before,
                 const HostArray& gradient, float factor, const HostArray& w_after,
                 const HostArray& u_after) {
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    A w = A(w_before.at(i));
    A g = A(gradient.at(i)) * A(factor);
    if (args.weight_decay != 0.0) g = std::fma(A(args.weight_decay), w, g);
    A d = g;
    if (args.momentum != 0.0) {
      const A u = args.first_step
                      ? g
                      : std::fma(A(args.momentum), A(u_before.at(i)), A(1.0 - args.dampening) * g);
      d = args.nesterov ? std::fma(A(args.momentum), u, g) : u;
      ASSERT_EQ(u_after.at(i), double(u)) << i;
    }
    w = std::fma(-A(args.lr), d, w);
    ASSERT_EQ(w_after.at(i), double(w)) << i;
  }
}

TEST(Sgd, EveryDTypeAndVariant_FollowsTheStatedOperationsBitForBit) {
  const HostArray factor = HostArray::full(Shape{1}, DType::f32, 0.37);
  struct Variant {
    double momentum, dampening, weight_decay;
    bool nesterov, first_step;
  };
  for (const Variant& variant :
       {Variant{0, 0, 0, false, false}, Variant{0, 0, 0.1, false, false},
        Variant{0.9, 0, 0, false, true}, Variant{0.9, 0.3, 0, false, false},
        Variant{0.9, 0, 0.1, true, false}, Variant{0.9, 0, 0, true, true}}) {
    for (const DType gradient_dtype : test::kFloatDTypes) {
      const DType dtype = gradient_dtype == DType::f64 ? DType::f64 : DType::f32;
      const test::DeviceScope scope(test::device_for(dtype));
      for (const int64_t n : test::kOddSizes) {
        const HostArray w = HostArray::random(Shape{n}, dtype, 1);
        const HostArray u = HostArray::random(Shape{n}, dtype, 2);
        const HostArray gradient = HostArray::random(Shape{n}, gradient_dtype, 3);
        HostArray w_after = w;
        HostArray u_after = variant.first_step ? HostArray(Shape{n}, dtype) : u;
        HostArray model(Shape{n}, DType::bf16);
        const Sgd args{.weights = w_after,
                       .gradient = gradient,
                       .velocity = u_after,
                       .model_weights = model,
                       .factor = factor,
                       .lr = 0.03,
                       .momentum = variant.momentum,
                       .dampening = variant.dampening,
                       .weight_decay = variant.weight_decay,
                       .nesterov = variant.nesterov,
                       .first_step = variant.first_step};
        sgd(args, test::test_stream());
        if (dtype == DType::f64) {
          expect_step<double>(args, w, u, gradient, 0.37f, w_after, u_after);
        } else {
          expect_step<float>(args, w, u, gradient, 0.37f, w_after, u_after);
        }
        ASSERT_TRUE(test::same_bits(model, w_after.as(DType::f32).as(DType::bf16)));
      }
    }
  }
}

TEST(Sgd, Skip_LeavesEveryBit) {
  const HostArray skip = HostArray::full(Shape{1}, DType::i32, 1.0);
  const HostArray before = HostArray::random(Shape{50}, DType::f32, 4);
  HostArray weights = before;
  HostArray velocity = before;
  sgd({.weights = weights, .gradient = before, .velocity = velocity, .skip = skip, .momentum = 0.9},
      test::test_stream());
  EXPECT_TRUE(test::same_bits(weights, before));
  EXPECT_TRUE(test::same_bits(velocity, before));
}

TEST(Sgd, LongArray_SameBitsForAllThreadCounts) {
  const HostArray gradient = HostArray::random(Shape{50'001}, DType::bf16, 5);
  EXPECT_TRUE(test::same_for_all_thread_counts([&] {
    HostArray weights = HostArray::random(Shape{50'001}, DType::f32, 6);
    HostArray velocity = weights;
    sgd({.weights = weights, .gradient = gradient, .velocity = velocity, .momentum = 0.9},
        test::test_stream());
    return std::vector<HostArray>{weights, velocity};
  }));
}

TEST(Sgd, BadArgumentsCostAndMetaDevice) {
  HostArray weights(Shape{8}, DType::f32);
  const HostArray gradient(Shape{8}, DType::bf16);
  const auto message = [&](const Sgd& args) {
    return test::message_of_invalid([&] { sgd(args, test::test_stream()); });
  };
  EXPECT_THAT(message({.weights = weights, .gradient = gradient, .momentum = 0.9}),
              HasSubstr("velocity is missing"));
  EXPECT_THAT(message({.weights = weights, .gradient = gradient, .nesterov = true}),
              HasSubstr("nesterov needs momentum"));
  EXPECT_THAT(message({.weights = gradient, .gradient = gradient}),
              HasSubstr("weights must be f64 or f32, not bf16"));
  EXPECT_EQ(cost(Sgd{.weights = weights, .gradient = gradient}).bytes(), 32 + 16 + 32);
  sgd({.weights = test::meta_view(Shape{8}, DType::f32),
       .gradient = test::meta_view(Shape{8}, DType::f32, 2)},
      test::test_stream());
}

}  // namespace sgd_test
}  // namespace zinc::kernels
