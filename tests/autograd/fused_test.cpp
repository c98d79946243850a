// Fused ops against compositions of basic ones. Equal bits where the fused op's contract says so.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/ops/attention.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/gelu.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/rotary.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/split.h"
#include "autograd/ops/swiglu.h"
#include "autograd/ops/unary.h"
#include "kernels/fp8_encode.h"
#include "tests/autograd/rank.h"

namespace zinc::autograd {
namespace fused_test {

using testing::random_tensor;
using testing::Rank;
using Values = std::vector<double>;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(std::span<const Tensor>)>;

class Fused : public ::testing::Test {
 protected:
  // Results of the function, then gradients of all inputs.
  std::vector<Values> evaluate(const Function& function, const std::vector<Shape>& shapes,
                               DType dtype) {
    rank_.context.random().set_position(0, 0);
    Tensors inputs;
    for (size_t i = 0; i < shapes.size(); ++i) {
      inputs.push_back(random_tensor(shapes[i], i, dtype));
      requires_grad_(inputs.back());
    }
    const Tensors results = function(inputs);
    std::vector<BackwardRoot> roots;
    std::vector<Values> values;
    for (size_t i = 0; i < results.size(); ++i) {
      roots.push_back({results[i], random_tensor(results[i].shape(), 50 + i, results[i].dtype())});
      values.push_back(results[i].to_vector<double>());
    }
    backward(roots);
    for (const Tensor& input : inputs) values.push_back(grad(input).to_vector<double>());
    return values;
  }

  void expect_equal(const Function& fused, const Function& composed,
                    const std::vector<Shape>& shapes, DType dtype) {
    EXPECT_EQ(evaluate(fused, shapes, dtype), evaluate(composed, shapes, dtype)) << name_of(dtype);
  }

  // `tolerance`: relative, L2, of every result and gradient.
  void expect_close(const Function& fused, const Function& composed,
                    const std::vector<Shape>& shapes, DType dtype, double tolerance) {
    const auto a = evaluate(fused, shapes, dtype);
    const auto b = evaluate(composed, shapes, dtype);
    for (size_t i = 0; i < a.size(); ++i) {
      double difference = 0;
      double size = 0;
      for (size_t k = 0; k < a[i].size(); ++k) {
        difference += (a[i][k] - b[i][k]) * (a[i][k] - b[i][k]);
        size += b[i][k] * b[i][k];
      }
      EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(size)) << name_of(dtype) << ", " << i;
    }
  }

  Rank rank_;
};

using In = std::span<const Tensor>;

// The epilogue and the kernel compute the function with code of their own: a few units in the last
// place (2^-53, 2^-24) of the dtype they compute in, which moves a 16-bit rounding (2^-9, 2^-12) of
// one element in a hundred.
TEST_F(Fused, LinearWithActivation_EqualsLinearThenActivation) {
  const std::vector<Shape> shapes{{3, 5, 16}, {24, 16}, {24}};
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::f64, 1e-15), std::pair(DType::f32, 5e-7), std::pair(DType::bf16, 4e-4),
        std::pair(DType::f16, 5e-5)}) {
    expect_close(
        [](In in) {
          return Tensors{linear(in[0], in[1], in[2], {.activation = Activation::gelu_tanh})};
        },
        [](In in) { return Tensors{gelu(linear(in[0], in[1], in[2]))}; }, shapes, dtype, tolerance);
    expect_close(
        [](In in) {
          return Tensors{linear(in[0], in[1], in[2], {.activation = Activation::gelu_erf})};
        },
        [](In in) { return Tensors{gelu(linear(in[0], in[1], in[2]), GeluKind::erf)}; }, shapes,
        dtype, tolerance);
    expect_close(
        [](In in) {
          return Tensors{linear(in[0], in[1], in[2], {.activation = Activation::silu})};
        },
        [](In in) { return Tensors{silu(linear(in[0], in[1], in[2]))}; }, shapes, dtype, tolerance);
  }
}

// One product rounds dx once; as many as there are weights round their sum again and again.
TEST_F(Fused, LinearOfSeveralWeights_IsTheirLayersSideBySide) {
  const std::vector<Shape> shapes{{3, 5, 16}, {24, 16}, {7, 16}, {8, 16}, {24}, {7}, {8}};
  for (const bool has_bias : {false, true}) {
    const auto bias = [&](In in, size_t i) { return has_bias ? Weight(in[i]) : Weight(); };
    const Function joined = [&](In in) {
      return Tensors{
          linear(in[0], {{in[1], bias(in, 4)}, {in[2], bias(in, 5)}, {in[3], bias(in, 6)}})};
    };
    const Function apart = [&](In in) {
      Tensors results;
      for (size_t i = 1; i < 4; ++i) results.push_back(linear(in[0], in[i], bias(in, i + 3)));
      return Tensors{concat(results, -1)};
    };
    const std::vector<Shape> used(shapes.begin(), shapes.begin() + (has_bias ? 7 : 4));
    for (const auto& [dtype, tolerance] :
         {std::pair(DType::f64, 1e-14), std::pair(DType::f32, 1e-6), std::pair(DType::bf16, 6e-3),
          std::pair(DType::f16, 8e-4)}) {
      expect_close(joined, apart, used, dtype, tolerance);
    }
  }
}

TEST_F(Fused, LinearOfSeveralWeights_TakesThemWhereTheyLie) {
  const auto with = [](const std::function<Tensor(const Tensor&)>& placed) {
    return [placed](In in) {
      const Tensors parts = split(in[1], {24, 7, 8}, 0);
      return Tensors{linear(in[0], {{placed(parts[0])}, {placed(parts[1])}, {placed(parts[2])}})};
    };
  };
  const auto in_place = with([](const Tensor& part) { return part; });
  const auto elsewhere = with([](const Tensor& part) { return scale(part, 1.0); });
  const auto whole = [](In in) { return Tensors{linear(in[0], in[1])}; };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    expect_equal(in_place, elsewhere, {{3, 5, 16}, {39, 16}}, dtype);
    expect_close(in_place, whole, {{3, 5, 16}, {39, 16}}, dtype, 1e-6);
  }
  // Measures the forward pass alone: its product needs a copy of the weights. The other products of
  // backward may take more than both, depending on the processor.
  const auto peak_with = [&](const Function& function) {
    const NoGrad no_grad;
    const Tensors inputs{random_tensor({1, 96}, 0), random_tensor({39, 96}, 1)};
    rank_.context.allocator().reset_peaks();
    function(inputs);
    return rank_.context.allocator().report().at(Tier::device, Label::workspace).peak;
  };
  EXPECT_GE(peak_with(elsewhere), peak_with(in_place) + 39 * 96 * int64_t{sizeof(float)});
}

// The values that the 8-bit codes of a matrix stand for.
Tensor in_8_bits(const Tensor& x, Fp8 format) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const Tensor codes = Tensor::empty(x.shape(), DType::u8), scale = Tensor::empty({2}, DType::f32);
  kernels::fp8_encode(
      {.x = x.view(), .format = format, .codes = codes.view(), .scale = scale.view()},
      compute_stream());
  kernels::fp8_decode(
      {.codes = codes.view(), .format = format, .scale = scale.view(), .y = y.view()},
      compute_stream());
  return y;
}

// Each of the three products, of operands that were rounded before: activations and weights to
// e4m3, gradients to e5m2. bf16 rounds a result by 2^-9; 8 bits move it by some 2^-5.
TEST_F(Fused, LinearOf8Bits_MultipliesRoundedOperands) {
  const auto off = [](const Values& got, const Tensor& expected) {
    const Values values = expected.to_vector<double>();
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += (got[i] - values[i]) * (got[i] - values[i]);
      size += values[i] * values[i];
    }
    return std::sqrt(difference / size);
  };
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const bool out_in = layout == WeightLayout::out_in;
    const Shape of_weight = out_in ? Shape{24, 16} : Shape{16, 24};
    const auto got = evaluate(
        [&](In in) { return Tensors{linear(in[0], in[1], {}, {.layout = layout, .fp8 = true})}; },
        {{15, 16}, of_weight}, DType::bf16);
    const auto results = [&](Fp8 forward, Fp8 backward) {
      const auto rounded = [](const Tensor& x, Fp8 format) {
        return format == Fp8::none ? x : in_8_bits(x, format);
      };
      const Tensor x = rounded(random_tensor({15, 16}, 0, DType::bf16), forward);
      const Tensor w = rounded(random_tensor(of_weight, 1, DType::bf16), forward);
      const Tensor dy = rounded(random_tensor({15, 24}, 50, DType::bf16), backward);
      const Tensor dw = out_in ? matmul(transpose(dy), x) : matmul(transpose(x), dy);
      return Tensors{matmul(x, out_in ? transpose(w) : w), matmul(dy, out_in ? w : transpose(w)),
                     dw};
    };
    const Tensors in_8 = results(Fp8::e4m3, Fp8::e5m2), in_16 = results(Fp8::none, Fp8::none);
    const Tensors other = results(Fp8::e5m2, Fp8::e4m3);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(off(got[i], in_8[i]), 0x1p-8) << i;
      EXPECT_GT(off(got[i], in_16[i]), 0x1p-7) << i;
      EXPECT_LE(off(got[i], in_16[i]), 0x1p-3) << i;
      EXPECT_GT(off(got[i], other[i]), 0x1p-7) << i;
    }
  }
}

// Weights have one scale, and so have their gradients.
TEST_F(Fused, LinearOfSeveralWeightsIn8Bits_RoundsThemAsOne) {
  const auto parts_of = [](In in) { return Tensors{in[1], scale(in[2], 0x1p-9)}; };
  const Function joined = [&](In in) {
    const Tensors parts = parts_of(in);
    return Tensors{linear(in[0], {{parts[0]}, {parts[1]}}, {.fp8 = true})};
  };
  const Function whole = [&](In in) {
    return Tensors{linear(in[0], concat(parts_of(in), 0), {}, {.fp8 = true})};
  };
  expect_equal(joined, whole, {{16, 32}, {24, 32}, {8, 32}}, DType::bf16);
}

// Rows that are multiplied apart have scales of their own.
TEST_F(Fused, LinearOf8Bits_ScalesRowsThatComeApart) {
  Values values = random_tensor({16, 16}, 0, DType::bf16).to_vector<double>();
  for (size_t i = values.size() / 2; i < values.size(); ++i) values[i] *= 0x1p-12;
  const Tensor x = Tensor::from(values, {16, 16}, DType::bf16);
  Tensor w = random_tensor({24, 16}, 1, DType::bf16);
  requires_grad_(w);
  const auto make_apart = [](const Tensor&, const std::function<void(int64_t, int64_t)>& make) {
    make(0, 8);
    make(8, 8);
  };
  const Tensor apart = linear(x, w, {}, {.in_rows = make_apart, .fp8 = true});
  Values parts;
  for (const int64_t first : {0, 8}) {
    const Tensor rows = x.narrow_view(0, first, 8);
    for (const double value : linear(rows, w, {}, {.fp8 = true}).to_vector<double>()) {
      parts.push_back(value);
    }
  }
  EXPECT_EQ(apart.to_vector<double>(), parts);
}

TEST_F(Fused, WeightLayouts_AreTransposesOfEachOther) {
  expect_close(
      [](In in) { return Tensors{linear(in[0], in[1])}; },
      [](In in) { return Tensors{linear(in[0], transpose(in[1]), {}, {WeightLayout::in_out})}; },
      {{7, 16}, {24, 16}}, DType::f64, 1e-14);
}

// Sums are the same; backward rounds dsum + dnorm once instead of twice.
TEST_F(Fused, ResidualNorms_EqualAddThenNorm) {
  const std::vector<Shape> shapes{{3, 5, 32}, {3, 5, 32}, {32}, {32}};
  const Function fused = [](In in) {
    const auto [sum, normed] = residual_layernorm(in[0], in[1], in[2], in[3]);
    return Tensors{sum, normed};
  };
  const Function composed = [](In in) {
    const Tensor sum = add(in[0], in[1]);
    return Tensors{sum, layernorm(sum, in[2], in[3])};
  };
  const Function fused_rms = [](In in) {
    const auto [sum, normed] = residual_rmsnorm(in[0], in[1], in[2]);
    return Tensors{sum, add(normed, in[3])};
  };
  const Function composed_rms = [](In in) {
    const Tensor sum = add(in[0], in[1]);
    return Tensors{sum, add(rmsnorm(sum, in[2]), in[3])};
  };
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::f64, 4e-16), std::pair(DType::f32, 2e-7), std::pair(DType::bf16, 1e-2)}) {
    expect_close(fused, composed, shapes, dtype, tolerance);
    expect_close(fused_rms, composed_rms, shapes, dtype, tolerance);
    rank_.context.random().set_position(0, 0);
    const auto a = evaluate(fused, shapes, dtype);
    const auto b = evaluate(composed, shapes, dtype);
    EXPECT_EQ(a[0], b[0]);  // the forward pass to the bit
    EXPECT_EQ(a[1], b[1]);
  }
}

TEST_F(Fused, PackedSwiGlu_EqualsTwoTensorsAndTheFormula) {
  const Function packed = [](In in) { return Tensors{swiglu(in[0])}; };
  const Function halves = [](In in) {
    const auto parts = split(in[0], {8, 8}, -1);
    return Tensors{swiglu(contiguous(parts[0]), contiguous(parts[1]))};
  };
  const Function formula = [](In in) {
    const auto parts = split(in[0], {8, 8}, -1);
    return Tensors{mul(silu(parts[0]), parts[1])};
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_equal(packed, halves, {{3, 5, 16}}, dtype);
  }
  expect_close(packed, formula, {{3, 5, 16}}, DType::f64, 1e-15);
}

TEST_F(Fused, DropoutResidual_EqualsAddOfDropout) {
  const DropoutOptions options{.probability = 0.3, .site = 4};
  expect_equal([&](In in) { return Tensors{dropout_residual(in[0], in[1], options)}; },
               [&](In in) { return Tensors{add(in[1], dropout(in[0], options))}; },
               {{5, 33}, {5, 33}}, DType::f32);
  EXPECT_EQ(dropout(random_tensor(Shape{3}, 1), {.probability = 0}).to_vector<double>(),
            random_tensor(Shape{3}, 1).to_vector<double>());
}

TEST_F(Fused, EmbeddingWithPositions_EqualsTwoLookups) {
  const Tensor ids = testing::ids_tensor({3, 1, 0, 3, 3, 2}, Shape{2, 3});
  const Tensor flat = testing::ids_tensor({3, 1, 0, 3, 3, 2}, Shape{6});
  const Tensor places = testing::ids_tensor({1, 2, 3, 1, 2, 3}, Shape{6});
  expect_equal([&](In in) { return Tensors{embedding(ids, in[0], in[1], {.start = 1})}; },
               [&](In in) {
                 const Tensor sum = add(gather_rows(in[0], flat), gather_rows(in[1], places));
                 return Tensors{reshape(sum, Shape{2, 3, 4})};
               },
               {{5, 4}, {6, 4}}, DType::f64);
}

// [B, T, H * D] -> [B, H, T, D], keys repeated for the query heads that share them.
Tensor by_heads(const Tensor& x, int64_t heads, int64_t repeat) {
  const int64_t b = x.dim(0), t = x.dim(1), d = x.dim(2) / heads;
  const Tensor swapped = permute(reshape(contiguous(x), Shape{b, t, heads, d}), {0, 2, 1, 3});
  if (repeat == 1) return swapped;
  std::vector<Tensor> copies;
  for (const Tensor& head :
       split(swapped, std::vector<int64_t>(static_cast<size_t>(heads), 1), 1)) {
    for (int64_t i = 0; i < repeat; ++i) copies.push_back(head);
  }
  return concat(copies, 1);
}

Tensor composed_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads,
                          int64_t kv_heads) {
  const int64_t b = q.dim(0), t = q.dim(1), d = q.dim(2) / heads;
  const Tensor scores =
      matmul(by_heads(q, heads, 1), by_heads(k, kv_heads, heads / kv_heads),
             {.transpose_b = true, .alpha = 1 / std::sqrt(static_cast<double>(d))});
  Values mask;
  for (int64_t i = 0; i < t; ++i) {
    for (int64_t j = 0; j < t; ++j) mask.push_back(j <= i ? 0 : -1e300);
  }
  const Tensor masked = add(scores, Tensor::from(mask, Shape{t, t}, q.dtype()));
  const Tensor out = matmul(softmax(masked), by_heads(v, kv_heads, heads / kv_heads));
  return reshape(permute(out, {0, 2, 1, 3}), Shape{b, t, heads * d});
}

TEST_F(Fused, Attention_EqualsTheComposition) {
  expect_close(
      [](In in) {
        return Tensors{attention(in[0], in[1], in[2], {.num_heads = 4, .num_kv_heads = 2})};
      },
      [](In in) { return Tensors{composed_attention(in[0], in[1], in[2], 4, 2)}; },
      {{2, 7, 12}, {2, 7, 6}, {2, 7, 6}}, DType::f64, 1e-13);
}

TEST_F(Fused, PackedAttention_HasTheBitsOfSplitAndOfThreeTensors) {
  const AttentionOptions options{.num_heads = 4, .num_kv_heads = 2, .dropout = 0.1, .site = 3};
  const Function packed = [&](In in) { return Tensors{attention(in[0], options)}; };
  const Function views = [&](In in) {
    const auto p = split(in[0], {32, 16, 16}, 2);
    return Tensors{attention(p[0], p[1], p[2], options)};
  };
  const Function copies = [&](In in) {
    const auto p = split(in[0], {32, 16, 16}, 2);
    return Tensors{attention(contiguous(p[0]), contiguous(p[1]), contiguous(p[2]), options)};
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    expect_equal(packed, views, {{2, 9, 64}}, dtype);
    expect_equal(packed, copies, {{2, 9, 64}}, dtype);
  }
}

TEST_F(Fused, AttentionOnViews_WritesItsGradientsIntoOneBuffer) {
  Tensor x = random_tensor(Shape{2, 8, 96}, 1);
  requires_grad_(x);
  const auto p = split(x, {32, 32, 32}, 2);
  const Tensor out = attention(p[0], p[1], p[2], {.num_heads = 2});
  const Tensor loss = sum(out);
  rank_.context.allocator().reset_peaks();
  const int64_t before = rank_.live(Label::activations);
  backward(loss);
  const int64_t extra =
      rank_.context.allocator().report().at(Tier::device, Label::activations).peak - before;
  // The gradients of loss, out and x; copies of dq, dk and dv would add that of x once more.
  EXPECT_LE(extra, 3 * kBlockAlignment + 4 * (2 * 8 * 32 + 2 * 8 * 96));
}

TEST_F(Fused, LinearCrossEntropy_EqualsLinearThenCrossEntropy) {
  const Tensor labels = testing::ids_tensor({0, 6, -100, 3, 3, 1}, Shape{6});
  expect_close([&](In in) { return Tensors{linear_cross_entropy(in[0], in[1], labels, in[2])}; },
               [&](In in) { return Tensors{cross_entropy(linear(in[0], in[1], in[2]), labels)}; },
               {{6, 16}, {7, 16}, {7}}, DType::f64, 1e-14);
}

TEST_F(Fused, Rotary_OfAMovedTensor_TurnsInPlaceWithTheSameBits) {
  const RotaryTable table = make_rotary_table(8, 4, 10000.0);
  const RotaryOptions options{.head_size = 4, .num_heads = 4};
  Tensor x = random_tensor(Shape{2, 5, 24}, 1);
  requires_grad_(x);
  const Tensor copied = rotary(scale(x, 2), table, options);  // a temporary is handed over
  Tensor y = scale(x, 2);
  const int64_t before = rank_.live();
  const void* const memory = y.view().data();
  const Tensor moved = rotary(std::move(y), table, options);
  EXPECT_EQ(moved.view().data(), memory);
  EXPECT_EQ(rank_.live(), before);
  const Tensor kept = scale(x, 2);
  const Tensor turned = rotary(kept, table, options);
  EXPECT_NE(turned.view().data(), kept.view().data());
  EXPECT_EQ(kept.to_vector<double>(), scale(x, 2).to_vector<double>());
  EXPECT_EQ(moved.to_vector<double>(), turned.to_vector<double>());
  EXPECT_EQ(copied.to_vector<double>(), turned.to_vector<double>());
  backward(moved, random_tensor(Shape{2, 5, 24}, 2));
  const Values first = grad(x).to_vector<double>();
  zero_grad(x);
  backward(turned, random_tensor(Shape{2, 5, 24}, 2));
  EXPECT_EQ(grad(x).to_vector<double>(), first);
}

}  // namespace fused_test
}  // namespace zinc::autograd
