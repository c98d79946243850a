// Values of the functions that are made of ops, on small tensors, and what they say of bad
// operands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/functions/losses.h"
#include "autograd/functions/products.h"
#include "autograd/functions/shapes.h"
#include "autograd/loss_scope.h"
#include "autograd/operators.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/cumsum.h"
#include "autograd/ops/expand.h"
#include "autograd/ops/gather.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/order.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/split.h"
#include "autograd/ops/where.h"
#include "tests/autograd/rank.h"

namespace zinc::autograd {
namespace functions_test {

using testing::ids_tensor;
using testing::random_tensor;
using testing::Rank;
using Values = std::vector<double>;

Values values(const Tensor& x) { return cast(x, DType::f64).to_vector<double>(); }

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Operators, TensorsNumbersAndMasks) {
  const Rank rank;
  const Tensor a = Tensor::from({1, 2, 3, 4}, Shape{2, 2});
  const Tensor b = Tensor::from({10, 20}, Shape{2});
  EXPECT_EQ(values(a + b), (Values{11, 22, 13, 24}));
  EXPECT_EQ(values(b - a), (Values{9, 18, 7, 16}));
  EXPECT_EQ(values(-a * 2.0f), (Values{-2, -4, -6, -8}));
  EXPECT_EQ(values(1 - a / 2), (Values{0.5, 0, -0.5, -1}));
  EXPECT_EQ(values(12 / a), (Values{12, 6, 4, 3}));
  EXPECT_EQ(values((a > 2) | (a == 1)), (Values{1, 0, 1, 1}));
  EXPECT_EQ(values((!(a >= b)) & (a != 4)), (Values{1, 1, 1, 0}));
  EXPECT_EQ((a < b).dtype(), DType::u8);
  Tensor c = a;
  c += 1.0;
  c *= b;
  EXPECT_EQ(values(c), (Values{20, 60, 40, 100}));
  EXPECT_EQ(values(a), (Values{1, 2, 3, 4}));
  EXPECT_EQ(message_of([&] { a + Tensor::zeros(Shape{3}); }),
            "add: shapes do not match: [2, 2] and [3]");
  EXPECT_EQ(message_of([&] {
              a* ids_tensor({1, 2}, {2});
            }),
            "mul: dtypes differ: f32 vs i32; cast() one of them");
  EXPECT_EQ(message_of([&] { exp(ids_tensor({1}, {1})); }),
            "exp: x must be a float, not i32; cast() it");
}

TEST(Operators, PowersOfEveryKind) {
  const Rank rank;
  const Tensor x = Tensor::from<float>({0.25F, 1.0F, 4.0F}, {3});
  EXPECT_EQ(values(pow(x, 2.0)), (Values{0.0625, 1, 16}));
  EXPECT_EQ(values(pow(x, 0.5)), (Values{0.5, 1, 2}));
  EXPECT_EQ(values(pow(x, -0.5)), (Values{2, 1, 0.5}));
  EXPECT_EQ(values(pow(x, -1.0)), (Values{4, 1, 0.25}));
  EXPECT_EQ(values(pow(x, 1.5)), (Values{0.125, 1, 8}));
}

// Errors name the function that was called, not the op that computes it.
TEST(Operators, ErrorsNameWhatWasCalled) {
  const Rank rank;
  const Tensor ids = ids_tensor({1, 2}, {2});
  const Tensor a = Tensor::zeros(Shape{2, 3});
  const Tensor b = Tensor::zeros(Shape{4, 5});
  const std::string not_float = ": x must be a float, not i32; cast() it";
  EXPECT_EQ(message_of([&] { ids + 1; }), "add" + not_float);
  EXPECT_EQ(message_of([&] { 1 - ids; }), "sub" + not_float);
  EXPECT_EQ(message_of([&] { ids * 2.0; }), "mul" + not_float);
  EXPECT_EQ(message_of([&] { 1 / ids; }), "div" + not_float);
  EXPECT_EQ(message_of([&] { pow(ids, 0.5); }), "pow" + not_float);
  EXPECT_EQ(message_of([&] { min(ids, 0); }), "min" + not_float);
  const std::string unlike = ": shapes do not match: [2, 3] and [4, 5]";
  EXPECT_EQ(message_of([&] { maximum(a, b); }), "maximum" + unlike);
  EXPECT_EQ(message_of([&] { minimum(a, b); }), "minimum" + unlike);
  EXPECT_EQ(message_of([&] { logical_and(a > 0, b > 0); }), "logical_and" + unlike);
  EXPECT_EQ(message_of([&] { logical_or(a > 0, b > 0); }), "logical_or" + unlike);
  EXPECT_EQ(message_of([&] { mse_loss(a, b); }),
            "mse_loss: x of shape [2, 3], target of shape [4, 5]");
  EXPECT_EQ(message_of([&] { logsumexp(a, 4); }),
            "logsumexp: no dimension 4 in a tensor of shape [2, 3]");
  EXPECT_EQ(message_of([&] { log_softmax(a, 4); }),
            "log_softmax: no dimension 4 in a tensor of shape [2, 3]");
  EXPECT_EQ(message_of([&] { one_hot(a, 3); }), "one_hot: ids must be i32 or i64, not f32");
  EXPECT_EQ(message_of([&] {
              where(a > 0, ids_tensor({1, 2, 3}, {3}), 0.5);
            }),
            "where: 0.5 is no value of i32");
  EXPECT_EQ(message_of([&] { cast(a, DType::u8); }), "cast: f32 does not convert to u8");
  EXPECT_EQ(message_of([&] { index_select(a, 0, ids_tensor({9}, {1})).to_vector<float>(); }),
            "index_select: index[0] is 9, outside [0, 2)");
}

TEST(Operators, Print_AsTheirValues) {
  const Rank rank;
  std::ostringstream text;
  text << Tensor::from({1, 2}, Shape{2});
  EXPECT_EQ(text.str(), "f32[2] on cpu\n[1, 2]");
}

TEST(Operators, MeanThatIsTakenAway_StretchesAlongTheRow) {
  const Rank rank;
  const Tensor x = Tensor::from({1, 3, 5, 7, 7, 7}, Shape{2, 3});
  EXPECT_EQ(values(x - mean(x, -1, true)), (Values{-2, 0, 2, 0, 0, 0}));
}

TEST(Reductions, AlongAnyDimensions) {
  const Rank rank;
  const Tensor x = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, Shape{2, 3, 2});
  EXPECT_EQ(values(sum(x, 1)), (Values{6, 9, 24, 27}));
  EXPECT_EQ(values(sum(x, {0, 2})), (Values{14, 22, 30}));
  EXPECT_EQ(sum(x, {0, -1}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(values(max(x, {1, 2})), (Values{5, 11}));
  EXPECT_EQ(values(min(x, 0)), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_NEAR(var(x, {0, 1, 2}).item(), 13.0, 1e-5);
  EXPECT_EQ(values(argmax(x, 1)), (Values{2, 2, 2, 2}));
  EXPECT_EQ(argmin(x, 0, true).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(message_of([&] { sum(x, 3); }), "sum: no dimension 3 in a tensor of shape [2, 3, 2]");
  EXPECT_EQ(message_of([&] {
              sum(x, {1, -2});
            }),
            "sum: a dimension is named twice: 1 of shape [2, 3, 2]");
  EXPECT_EQ(message_of([&] {
              max(Tensor::zeros(Shape{2, 0}), 1);
            }),
            "max: no max of no elements, of shape [2, 0]");
  EXPECT_EQ(message_of([&] {
              mean(Tensor::zeros(Shape{2, 0}), 1);
            }),
            "mean: no mean of no elements, of shape [2, 0]");
  EXPECT_EQ(sum(Tensor::zeros(Shape{2, 0}), 1).to_vector<double>(), (Values{0, 0}));
  EXPECT_EQ(message_of([&] {
              argmax(Tensor::zeros(Shape{2, 0}), 1);
            }),
            "argmax: no place in dimension 1 of shape [2, 0]");
  EXPECT_EQ(message_of([&] {
              var(Tensor::zeros(Shape{2, 1}), 1);
            }),
            "var: 1 elements with a correction of 1, of shape [2, 1]");
}

TEST(Reductions, LogSumExp_OfLargeAndOfNoValues) {
  const Rank rank;
  const double inf = INFINITY;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = Tensor::from(Values{1000, 1000, -inf, -inf}, Shape{2, 2}, dtype);
    const Values y = values(logsumexp(x, -1));
    EXPECT_NEAR(y[0], 1000 + std::log(2.0), 1000.0 / 256) << name_of(dtype);
    EXPECT_EQ(y[1], -inf) << name_of(dtype);
  }
}

TEST(Shapes, PartsOfATensor) {
  const Rank rank;
  const Tensor x = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, Shape{3, 4});
  EXPECT_EQ(values(at(x, {1, Slice{0, 2}})), (Values{4, 5}));
  EXPECT_EQ(values(at(x, {Slice{1, -1}, -1})), (Values{7}));
  EXPECT_EQ(at(x, {Slice{}, 2}).shape(), Shape{3});
  EXPECT_EQ(values(at(x, {2, 3})), (Values{11}));
  EXPECT_EQ(at(x, {2, 3}).item(), 11);
  EXPECT_EQ(at(x, {Slice{2, 1}}).shape(), (Shape{0, 4}));
  EXPECT_EQ(values(flip(at(x, {0}), 0)), (Values{3, 2, 1, 0}));
  EXPECT_EQ(values(pad(at(x, {0}), 0, 1, 2, -1)), (Values{-1, 0, 1, 2, 3, -1, -1}));
  EXPECT_EQ(stack({x, x}, -1).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(values(at(stack({x, x + 1.0}, 1), {2, 1})), (Values{9, 10, 11, 12}));
  EXPECT_EQ(flatten(unsqueeze(x, 1), 0, 1).shape(), (Shape{3, 4}));
  EXPECT_EQ(squeeze(unsqueeze(x, -1), 2).shape(), (Shape{3, 4}));
  EXPECT_EQ(values(expand(Tensor::from({1, 2}, Shape{2, 1}), Shape{2, 3})),
            (Values{1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(message_of([&] { at(x, {3}); }), "at: no element 3 in dimension 0 of shape [3, 4]");
  EXPECT_EQ(message_of([&] { at(x, {0, 0, 0}); }), "at: 3 places for a tensor of shape [3, 4]");
  EXPECT_EQ(message_of([&] { squeeze(x, 0); }),
            "squeeze: dimension 0 of shape [3, 4] has 3 elements");
  EXPECT_EQ(message_of([&] { stack({x, at(x, {0})}); }), "stack: shapes differ: [3, 4] vs [4]");
  EXPECT_EQ(message_of([&] {
              expand(x, Shape{3, 5});
            }),
            "expand: [3, 4] does not stretch to [3, 5]");
}

TEST(Shapes, NewTensors) {
  const Rank rank;
  EXPECT_EQ(arange(2, 8, 2).to_vector<int64_t>(), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(values(one_hot(ids_tensor({2, 0, -1}, {3}), 3)), (Values{0, 0, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(tril_mask(2, 3)), (Values{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(values(triu_mask(2, 3, 1)), (Values{0, 1, 1, 0, 0, 1}));
}

TEST(Choices, MasksAndOrder) {
  const Rank rank;
  const Tensor x = Tensor::from({3, -1, 2, NAN}, Shape{4});
  EXPECT_EQ(values(masked_fill(x, x != x, 0.0)), (Values{3, -1, 2, 0}));
  EXPECT_EQ(values(where(x > 0, x, -1.0)), (Values{3, -1, 2, -1}));
  EXPECT_EQ(where(ids_tensor({1}, {1}) == 1, ids_tensor({5}, {1}), 0.0).dtype(), DType::i32);
  const Ordered best = topk(at(x, {Slice{0, 3}}), 2);
  EXPECT_EQ(values(best.values), (Values{3, 2}));
  EXPECT_EQ(best.indices.to_vector<int64_t>(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(values(sort(at(x, {Slice{0, 3}})).values), (Values{-1, 2, 3}));
  EXPECT_EQ(values(cumsum(at(x, {Slice{0, 3}}))), (Values{3, 2, 4}));
  EXPECT_EQ(message_of([&] { topk(x, 5); }), "topk: 5 of the last dimension of shape [4]");
  EXPECT_EQ(message_of([&] { where(x, x, x); }),
            "where: the mask must be u8, not f32; comparisons give one");
  EXPECT_EQ(message_of([&] { cumsum(x, 1); }), "cumsum: no dimension 1 in a tensor of shape [4]");
}

TEST(Choices, WhatIsNotChosen_HasNoGradient_EvenOfNaN) {
  const Rank rank;
  Tensor x = Tensor::from({4, NAN}, Shape{2});
  requires_grad_(x);
  backward(sum(where(x > 0, x * 3.0, 0.0)));
  EXPECT_EQ(values(grad(x)), (Values{3, 0}));
}

// Gradients of 16-bit operands of every pair of shapes that stretch, beside those in f64.
TEST(SixteenBits, GradientsOverShapesThatStretch) {
  const Rank rank;
  const std::vector<std::pair<Shape, Shape>> pairs{{{2, 3, 4}, {2, 3, 1}}, {{2, 3, 1}, {2, 3, 4}},
                                                   {{2, 1, 4}, {1, 3, 4}}, {{2, 3, 4}, {4}},
                                                   {{4}, {2, 3, 4}},       {{2, 3, 4}, {}},
                                                   {{2, 3, 4}, {3, 1}},    {{2, 3, 4}, {2, 3, 4}}};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const auto op :
         {kernels::BinaryOp::add, kernels::BinaryOp::sub, kernels::BinaryOp::mul,
          kernels::BinaryOp::div, kernels::BinaryOp::maximum, kernels::BinaryOp::minimum}) {
      for (const auto& [a_shape, b_shape] : pairs) {
        SCOPED_TRACE(str(name_of(dtype), ' ', kernels::name_of(op), ' ', a_shape, ' ', b_shape));
        Tensor a = cast(random_tensor(a_shape, 1), dtype),
               b = cast(random_tensor(b_shape, 2), dtype);
        const auto gradients = [&](DType of) {
          Tensor x = cast(a, of).clone(), y = cast(b, of).clone();
          requires_grad_(x);
          requires_grad_(y);
          backward(sum(flatten(cast(binary(op, x, y), DType::f64))));
          return std::pair(values(grad(x)), values(grad(y)));
        };
        const auto narrow = gradients(dtype), wide = gradients(DType::f64);
        const auto expect_near = [](const Values& found, const Values& wanted) {
          ASSERT_EQ(found.size(), wanted.size());
          for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_NEAR(found[i], wanted[i], 0.03 * (1.0 + std::fabs(wanted[i])));
          }
        };
        expect_near(narrow.first, wide.first);
        expect_near(narrow.second, wide.second);
      }
    }
  }
}

TEST(SixteenBits, SumsAreRoundedOnce) {
  const Rank rank;
  const Tensor x = Tensor::from({256, 258}, Shape{2}, DType::bf16);
  EXPECT_EQ(values(var(x, 0, false, 0)), (Values{1}));
  const Tensor taps = Tensor::from({256, 1, 1, 1}, Shape{1, 1, 4}, DType::bf16);
  EXPECT_EQ(values(conv1d(Tensor::full(Shape{1, 1, 4}, 1.0, DType::bf16), taps, {})),
            (Values{260}));
  const Tensor many = Tensor::full(Shape{400, 400}, 1.0, DType::f16);
  EXPECT_EQ(mse_loss(many, many - 1.0).item(), 160000);
  EXPECT_EQ(nll_loss(many, Tensor::zeros(Shape{400}, DType::i64)).dtype(), DType::f32);
}

TEST(Reductions, OfViewsAndOfNoRows) {
  const Rank rank;
  const Tensor x = random_tensor(Shape{2, 4, 3}, 5);
  const Tensor view = autograd::narrow(x, 1, 0, 3);  // rows at two strides
  EXPECT_EQ(values(max(view, -1)), values(max(contiguous(view), -1)));
  EXPECT_EQ(values(logsumexp(view, -1)), values(logsumexp(contiguous(view), -1)));
  EXPECT_EQ(values(log_softmax(view)), values(log_softmax(contiguous(view))));
  EXPECT_EQ(max(Tensor::zeros(Shape{0, 5}), -1).shape(), Shape{0});
  EXPECT_EQ(log_softmax(Tensor::zeros(Shape{0, 5})).shape(), (Shape{0, 5}));
  const Tensor labels = autograd::narrow(ids_tensor({0, 1, 2, 2, 1, 0, 1, 1}, {2, 4}), 1, 1, 3);
  EXPECT_EQ(nll_loss(view, labels).item(), nll_loss(contiguous(view), contiguous(labels)).item());
  EXPECT_TRUE(std::signbit(values(expand(Tensor::from({-0.0}, Shape{1}), Shape{3}))[2]));
}

TEST(Indexing, AlongAnyDimension) {
  const Rank rank;
  const Tensor x = Tensor::from({0, 1, 2, 3, 4, 5}, Shape{2, 3});
  EXPECT_EQ(values(gather(x, 1, ids_tensor({2, 0, 1, 1}, {2, 2}))), (Values{2, 0, 4, 4}));
  EXPECT_EQ(values(gather(x, 0, ids_tensor({1, 0, 1}, {1, 3}))), (Values{3, 1, 5}));
  EXPECT_EQ(values(index_select(x, 1, ids_tensor({2, 2}, {2}))), (Values{2, 2, 5, 5}));
  const Tensor ones = Tensor::full(Shape{2, 3}, 1.0);
  EXPECT_EQ(values(scatter_add(x, 1, ids_tensor({0, 0, 0, 2, 1, 2}, {2, 3}), ones)),
            (Values{3, 1, 2, 3, 5, 7}));
  EXPECT_EQ(message_of([&] {
              gather(x, 1, ids_tensor({0, 3}, {2, 1})).to_vector<double>();
            }),
            "gather: index[1] is 3, outside [0, 3)");
  EXPECT_EQ(
      message_of([&] {
        gather(x, 1, ids_tensor({0}, {1, 1}));
      }),
      "gather: index of shape [1, 1] for x of shape [2, 3]: they must agree but for dimension 1");
  EXPECT_EQ(message_of([&] { index_select(x, 2, ids_tensor({0}, {1})); }),
            "index_select: no dimension 2 in a tensor of shape [2, 3]");
}

TEST(Losses, EqualTheirFormulas) {
  const Rank rank;
  const Tensor logits = random_tensor({4, 7}, 1, DType::f64, -2, 2);
  const Tensor labels = ids_tensor({3, -100, 0, 6}, {4});
  const double loss = cross_entropy(logits, labels).item();
  EXPECT_NEAR(nll_loss(log_softmax(logits), labels).item(), loss, 1e-12);
  EXPECT_NEAR(smoothed_cross_entropy(logits, labels, 0.0).item(), loss, 1e-12);
  const Values x = values(logits);
  double spread = 0.0, z = 0.0, binary = 0.0, squares = 0.0;
  for (const int64_t r : {0, 2, 3}) {
    double sum_of_exp = 0.0, total = 0.0;
    for (int64_t c = 0; c < 7; ++c) {
      sum_of_exp += std::exp(x[static_cast<size_t>(r * 7 + c)]);
      total += x[static_cast<size_t>(r * 7 + c)];
    }
    spread += std::log(sum_of_exp) - total / 7;
    z += std::log(sum_of_exp) * std::log(sum_of_exp);
  }
  for (const double v : x) {
    const double p = 1.0 / (1.0 + std::exp(-v));
    binary -= 0.25 * std::log(p) + 0.75 * std::log(1.0 - p);
    squares += (v - 0.25) * (v - 0.25);
  }
  const Tensor target = Tensor::full(Shape{4, 7}, 0.25, DType::f64);
  EXPECT_NEAR(smoothed_cross_entropy(logits, labels, 0.1).item(), 0.9 * loss + 0.1 * spread, 1e-12);
  EXPECT_NEAR(z_loss(logits, labels).item(), z, 1e-12);
  EXPECT_NEAR(binary_cross_entropy_with_logits(logits, target).item(), binary, 1e-12);
  EXPECT_NEAR(mse_loss(logits, target).item(), squares, 1e-12);
  EXPECT_EQ(message_of([&] { nll_loss(logits, ids_tensor({1}, {1})); }),
            "nll_loss: 1 labels for rows of shape [4, 7]");
  EXPECT_EQ(message_of([&] { smoothed_cross_entropy(logits, labels, 1.5); }),
            "smoothed_cross_entropy: smoothing must lie in [0, 1]: 1.5");
}

// torch.nn.functional.cross_entropy(x, labels, label_smoothing=0.1, reduction="sum") in f64, and
// the gradients of the first and the last row (PyTorch 2.15).
TEST(Losses, UnderLabelSmoothing_AreThoseOfPyTorch) {
  const Rank rank;
  Values x;
  for (int i = 0; i < 28; ++i) x.push_back(((i * 37 + 11) % 23 - 11) / 4.0);
  Tensor logits = Tensor::from(x, Shape{4, 7});
  autograd::requires_grad_(logits);
  const Tensor labels = ids_tensor({3, -100, 0, 6}, {4});
  Tensor loss;
  {
    const LossScope smoothing({.label_smoothing = 0.1});
    loss = cross_entropy(logits, labels);
  }
  EXPECT_NEAR(loss.item(), 9.97522766047448, 1e-13);
  EXPECT_NEAR(smoothed_cross_entropy(logits, labels, 0.1).item(), loss.item(), 1e-13);
  EXPECT_NE(cross_entropy(logits, labels).item(), loss.item());
  autograd::backward(loss);
  const Values dx = values(grad(logits));
  const Values first{0.039577703205564932,  -0.0086085518498814993, 0.17371608561979909,
                     -0.89447047035943839,  0.64190504400464465,    0.054876282802751294,
                     -0.0069960934234400991};
  const Values last{-0.0036430320511450505, 0.33815151796479126, 0.022860896700218687,
                    -0.01037049029269572,   0.11536869776261154, -0.0006202397947962996,
                    -0.46174735028898456};
  for (size_t c = 0; c < 7; ++c) {
    EXPECT_NEAR(dx[c], first[c], 1e-15);
    EXPECT_EQ(dx[7 + c], 0.0);  // no label
    EXPECT_NEAR(dx[21 + c], last[c], 1e-15);
  }
  EXPECT_EQ(message_of([&] {
              const LossScope smoothing({.label_smoothing = 1.5});
              cross_entropy(logits, labels);
            }),
            "cross_entropy: label smoothing must lie in [0, 1], not 1.5");
}

TEST(Products, EinsumAndConvolution) {
  const Rank rank;
  const Tensor a = Tensor::from({1, 2, 3, 4}, Shape{2, 2});
  const Tensor b = Tensor::from({1, 1, 0, 2}, Shape{2, 2});
  EXPECT_EQ(values(einsum("ij,jk->ik", a, b)), (Values{1, 5, 3, 11}));
  EXPECT_EQ(values(einsum("ij,jk->ki", a, b)), (Values{1, 3, 5, 11}));
  EXPECT_EQ(values(einsum("ij,kj->i", a, b)), (Values{7, 15}));
  EXPECT_EQ(message_of([&] { einsum("ij,jk", a, b); }),
            "einsum: 'ij,jk' is not of the form \"ij,jk->ik\"");
  EXPECT_EQ(message_of([&] { einsum("ij,jk->il", a, b); }),
            "einsum: 'ij,jk->il': l of the result is in neither tensor");
  EXPECT_EQ(message_of([&] { einsum("ijk,k->ij", a, b); }),
            "einsum: 'ijk,k->ij': ijk for a tensor of shape [2, 2]");
  EXPECT_EQ(message_of([&] {
              einsum("ij,jk->ik", a, Tensor::zeros(Shape{3, 1}));
            }),
            "einsum: 'ij,jk->ik': the extents of j differ: [2, 2] vs [3, 1]");
  const Tensor x = Tensor::from({1, 2, 3, 4, 10, 20, 30, 40}, Shape{1, 2, 4});
  const Tensor w = Tensor::from({1, 0, 0, 1}, Shape{1, 2, 2});
  EXPECT_EQ(values(conv1d(x, w)), (Values{21, 32, 43}));
  EXPECT_EQ(values(conv1d(x, w, Tensor::from({1}, Shape{1}), {.padding = 1, .stride = 2})),
            (Values{11, 33, 5}));
  const Tensor each = Tensor::from({1, 1, 0, 1}, Shape{2, 1, 2});
  EXPECT_EQ(values(conv1d(x, each, {}, {.dilation = 2})), (Values{4, 6, 30, 40}));
  EXPECT_EQ(message_of([&] {
              conv1d(x, Tensor::zeros(Shape{1, 3, 2}));
            }),
            "conv1d: channels differ: x of shape [1, 2, 4], weight of shape [1, 3, 2]");
}

TEST(Norms, WithoutWeights) {
  const Rank rank;
  const Tensor x = random_tensor({3, 8}, 2);
  const Tensor one = Tensor::full(Shape{8}, 1.0);
  EXPECT_EQ(values(layernorm(x)), values(layernorm(x, one)));
}

TEST(Functions, MetaDevice_ShapesOnly) {
  const Rank rank({.device = {.kind = DeviceKind::cpu, .index = 0, .meta = true}});
  const Tensor x = Tensor::zeros(Shape{2, 3, 4});
  const Tensor index = Tensor::zeros(Shape{2, 3, 4}, DType::i64);
  EXPECT_EQ((x - mean(x, 1, true) > 0).shape(), x.shape());
  EXPECT_EQ(topk(x, 2).indices.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(scatter_add(x, 1, index, x).shape(), x.shape());
  EXPECT_EQ(cumsum(x, 0).shape(), x.shape());
  EXPECT_EQ(argmax(x, 1, true).rank(), x.rank());
  EXPECT_EQ(masked_fill(x, tril_mask(3, 4), 1.0).shape(), x.shape());
  EXPECT_EQ(einsum("abc,adc->bd", x, x).shape(), (Shape{3, 3}));
}

}  // namespace functions_test
}  // namespace zinc::autograd
