// The same bits on every SIMD target of this machine, and right results on the portable one.
#include "kernels/cpu/highway_targets.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/accumulate.h"
#include "kernels/binary.h"
#include "kernels/copy.h"
#include "kernels/dropout.h"
#include "kernels/element_update.h"
#include "kernels/embedding.h"
#include "kernels/finite_norm.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/reduce.h"
#include "kernels/residual_norm.h"
#include "kernels/rmsnorm.h"
#include "kernels/rotary.h"
#include "kernels/scale.h"
#include "kernels/swiglu.h"
#include "kernels/tree_sum.h"
#include "kernels/unary.h"
#include "tests/kernels/host_array.h"

namespace zinc::kernels {
namespace simd_targets_test {

using test::HostArray;
using Results = std::vector<HostArray>;

// Runs `body` on each target that was compiled and that this machine has, best first.
void for_each_target(const std::function<void(const std::string& name, bool has_fma)>& body) {
  const int64_t supported = hwy::SupportedTargets();
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body(hwy::TargetName(target), target != HWY_SCALAR && target != HWY_EMU128);
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(supported);
}

HostArray bytes(int64_t n) { return HostArray(Shape{n}, DType::u8); }

// Ops whose contract fixes every operation, or whose operations are single ones.
Results exact_ops(DType dtype) {
  const StreamRef stream = test::test_stream();
  const Shape shape{67, 131};
  const int64_t n = shape.numel();
  const HostArray x = HostArray::random(shape, dtype, 1);
  const HostArray y = HostArray::random(shape, dtype, 2, 0.5, 1.0);
  Results out;
  for (const BinaryOp op : {BinaryOp::add, BinaryOp::mul, BinaryOp::div, BinaryOp::maximum}) {
    out.emplace_back(shape, dtype);
    binary({.op = op, .a = x, .b = y, .y = out.back()}, stream);
  }
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max}) {
    out.emplace_back(Shape{67}, dtype);
    reduce({.op = op, .over = ReduceOver::last, .x = x, .y = out.back()}, stream);
    out.emplace_back(Shape{131}, DType::f32);
    reduce({.op = op, .over = ReduceOver::leading, .x = x, .y = out.back()}, stream);
  }
  out.emplace_back(shape, dtype);
  scale({.x = x, .factor = 0.3, .y = out.back()}, stream);
  for (const DType to : test::kShortFloatDTypes) {
    out.emplace_back(shape, to);
    copy({.x = x, .y = out.back()}, stream);
    out.push_back(HostArray::random(shape, to, 3));
    accumulate({.x = x, .accumulator = out.back()}, stream);
  }
  out.emplace_back(shape, dtype);
  dropout({.x = x,
           .y = out.back(),
           .p = 0.3,
           .key = make_random_key(1, Purpose::dropout, 2, 3, 4),
           .first_element = (int64_t{1} << 34) - 100},
          stream);
  out.emplace_back(Shape{131}, dtype);
  tree_sum({.in = x, .out = out.back()}, stream);
  out.emplace_back(Shape{num_norm_chunks(n)}, DType::f64);
  const HostArray nonfinite(Shape{1}, DType::i64);
  finite_norm(
      {.x = x.view().reshape(Shape{n}), .chunk_sums = out.back(), .first_nonfinite = nonfinite},
      stream);
  const HostArray gradient = HostArray::random(Shape{n}, dtype, 4);
  HostArray weights = HostArray::random(Shape{n}, DType::f32, 5);
  HostArray m = HostArray::random(Shape{n}, DType::f32, 6);
  HostArray v = HostArray::random(Shape{n}, DType::f32, 7, 0.0, 1.0);
  HostArray model(Shape{n}, DType::bf16);
  HostArray h = v;
  const auto update = [&](UpdateRule rule) {
    ElementUpdate args{.rule = rule,
                       .gradient = gradient,
                       .states = {m, v, h},
                       .constants = {.weight_decay = 0.1, .momentum = 0.9, .nesterov = true},
                       .step = 3};
    (makes_direction(rule) ? args.direction : args.model_weights) = model;
    if (reads_weights(rule)) args.weights = weights;
    element_update(args, stream);
    out.push_back(model);
  };
#define ZINC_ROW(name, ...) update(UpdateRule::name);
  ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  for (const HostArray* state : {&weights, &m, &v, &h, &model}) out.push_back(*state);
  constexpr int64_t kInBlocks = 8 * kFormatChunk;
  HostArray of_blocks = HostArray::random(Shape{kInBlocks}, DType::f32, 5);
  HostArray first = HostArray::full(Shape{8 * kInt8ChunkBytes}, DType::u8, 0.0);
  HostArray second = first;
  for (const int64_t step : {1, 2}) {
    element_update({.rule = UpdateRule::adamw,
                    .weights = of_blocks,
                    .gradient = HostArray::random(Shape{kInBlocks}, dtype, 9),
                    .states = {first, second},
                    .step = step},
                   stream);
  }
  for (const HostArray* state : {&of_blocks, &first, &second}) out.push_back(*state);
  const HostArray ids = HostArray::random(Shape{67}, DType::i32, 8, 0.0, 10.0);
  out.emplace_back(Shape{10, 131}, dtype);
  embedding_backward({.ids = ids,
                      .dy = x,
                      .dtable = out.back(),
                      .workspace = bytes(embedding_backward_workspace_bytes(67))},
                     stream);
  return out;
}

// Ops with elementary functions and multiply-adds of their own.
Results rounded_ops(DType dtype) {
  const StreamRef stream = test::test_stream();
  const Shape shape{67, 131};
  const HostArray x = HostArray::random(shape, dtype, 1, 0.1, 3.0);
  const HostArray dy = HostArray::random(shape, dtype, 2);
  const HostArray gamma = HostArray::random(Shape{131}, dtype, 3, 0.5, 1.5);
  Results out;
  const auto add = [&](const Shape& extents, DType type) {
    return out.emplace_back(extents, type).view();
  };
  for (const UnaryOp op : {UnaryOp::exp, UnaryOp::log, UnaryOp::tanh, UnaryOp::silu}) {
    unary({.op = op, .x = x, .y = add(shape, dtype)}, stream);
    unary_backward({.op = op, .x = x, .dy = dy, .dx = add(shape, dtype)}, stream);
  }
  for (const GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    gelu_forward({.kind = kind, .x = x, .y = add(shape, dtype)}, stream);
    gelu_backward({.kind = kind, .x = x, .dy = dy, .dx = add(shape, dtype)}, stream);
  }
  swiglu_forward({.gate = x, .up = dy, .y = add(shape, dtype)}, stream);
  const View mean = add(Shape{67}, DType::f32);
  const View rstd = add(Shape{67}, DType::f32);
  layernorm_forward(
      {.x = x, .gamma = gamma, .beta = gamma, .y = add(shape, dtype), .mean = mean, .rstd = rstd},
      stream);
  const HostArray workspace = bytes(norm_backward_workspace_bytes(67, 131, dtype, DeviceKind::cpu));
  layernorm_backward({.dy = dy,
                      .x = x,
                      .gamma = gamma,
                      .mean = mean,
                      .rstd = rstd,
                      .dx = add(shape, dtype),
                      .dgamma = add(Shape{131}, DType::f32),
                      .dbeta = add(Shape{131}, DType::f32),
                      .workspace = workspace},
                     stream);
  rmsnorm_forward({.x = x, .gamma = gamma, .y = add(shape, dtype), .rstd = rstd}, stream);
  rmsnorm_backward({.dy = dy,
                    .x = x,
                    .gamma = gamma,
                    .rstd = rstd,
                    .dx = add(shape, dtype),
                    .dgamma = add(Shape{131}, DType::f32),
                    .workspace = workspace},
                   stream);
  HostArray table(Shape{67, 65}, DType::f32);
  HostArray sines(Shape{67, 65}, DType::f32);
  fill_rotary_table(rotary_frequencies(130, 10000.0), 0, table, sines);
  for (const RotaryLayout layout : {RotaryLayout::half_split, RotaryLayout::interleaved}) {
    out.push_back(x);
    rotary({.q = out.back().view().reshape(Shape{1, 67, 1, 131}),
            .cos = table,
            .sin = sines,
            .layout = layout},
           stream);
  }
  return out;
}

TEST(SimdTargets, ContractsThatFixEveryOperation_SameBitsOnAllTargets) {
  for (const DType dtype : test::kShortFloatDTypes) {
    Results first;
    for_each_target([&](const std::string& name, bool) {
      const Results now = exact_ops(dtype);
      if (first.empty()) first = now;
      ASSERT_EQ(now.size(), first.size());
      for (size_t i = 0; i < now.size(); ++i) {
        EXPECT_TRUE(test::same_bits(now[i], first[i])) << name << " " << name_of(dtype) << " " << i;
      }
    });
  }
}

TEST(SimdTargets, OtherOps_SameBitsWhereMultiplyAddIsFusedAndCloseElsewhere) {
  for (const DType dtype : test::kShortFloatDTypes) {
    Results first;
    for_each_target([&](const std::string& name, bool has_fma) {
      const Results now = rounded_ops(dtype);
      if (first.empty()) first = now;
      ASSERT_EQ(now.size(), first.size());
      for (size_t i = 0; i < now.size(); ++i) {
        if (has_fma) {
          EXPECT_TRUE(test::same_bits(now[i], first[i])) << name << " " << name_of(dtype) << i;
        } else {
          // Other roundings of f32, then at most one step of the dtype on a few elements.
          EXPECT_LE(test::relative_l2(now[i], first[i]),
                    0.1 * test::epsilon_of(dtype) + 64 * 0x1p-24)
              << name << " " << name_of(dtype) << i;
        }
      }
    });
  }
}

}  // namespace simd_targets_test
}  // namespace zinc::kernels
