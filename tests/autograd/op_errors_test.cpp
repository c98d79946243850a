// Every op refuses operands that its contract excludes, with a message that starts with its name.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "autograd/ops/attention.h"
#include "autograd/ops/binary.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/concat.h"
#include "autograd/ops/cross_entropy.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/gather_rows.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/norm.h"
#include "autograd/ops/permute.h"
#include "autograd/ops/reduce.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/rotary.h"
#include "autograd/ops/softmax.h"
#include "autograd/ops/split.h"
#include "autograd/ops/swiglu.h"
#include "autograd/ops/value.h"
#include "tests/autograd/rank.h"

namespace zinc::autograd {
namespace op_errors_test {

struct BadCall {
  std::string op;
  std::function<void()> call;
};

Tensor f32(const Shape& shape) { return Tensor::zeros(shape); }
Tensor f64(const Shape& shape) { return Tensor::zeros(shape, DType::f64); }
Tensor ids(const Shape& shape) { return Tensor::zeros(shape, DType::i32); }

std::vector<BadCall> bad_calls() {
  return {
      {"add",
       [] {
         add(f32({2, 3}), f32({2}));
       }},
      {"add",
       [] {
         add(f32({2, 3}), f64({2, 3}));
       }},
      {"sub",
       [] {
         sub(f32({3}), f32({2, 2}));
       }},
      {"matmul",
       [] {
         matmul(f32({2, 3}), f32({2, 3}));
       }},
      {"matmul",
       [] {
         matmul(f32({2, 2, 3}), f32({3, 3, 4}));
       }},
      {"matmul",
       [] {
         matmul(f32({3}), f32({3, 4}));
       }},
      {"matmul",
       [] {
         matmul(f32({2, 3}), f64({3, 4}));
       }},
      {"linear",
       [] {
         linear(f32({2, 3}), f32({4, 5}));
       }},
      {"linear",
       [] {
         linear(f32({2, 3}), f32({4, 3}), f32({3}));
       }},
      {"linear",
       [] {
         linear(f32({2, 3}), f64({4, 3}));
       }},
      {"linear",
       [] {
         linear(f32({2, 3}), Weight());
       }},
      {"linear",
       [] {
         linear(f32({2, 3}), f32({4, 3}), {}, {.addend = f32({2, 3})});
       }},
      {"linear",
       [] {
         linear(f32({2, 3}), f32({4, 3}), {},
                {.activation = Activation::silu, .addend = f32({2, 4})});
       }},
      {"layernorm",
       [] {
         layernorm(f32({2, 3}), f32({4}));
       }},
      {"layernorm",
       [] {
         layernorm(f32({2, 3}), f32({3}), f32({2}));
       }},
      {"rmsnorm",
       [] {
         rmsnorm(f32({2, 3}), Weight());
       }},
      {"residual_layernorm",
       [] {
         residual_layernorm(f32({2, 3}), f32({3, 2}), f32({3}));
       }},
      {"residual_rmsnorm",
       [] {
         residual_rmsnorm(f32({2, 3}), f32({2, 3}), f64({3}));
       }},
      {"swiglu",
       [] {
         swiglu(f32({2, 3}));
       }},
      {"swiglu",
       [] {
         swiglu(f32({2, 3}), f32({2, 4}));
       }},
      {"rotary",
       [] {
         rotary(f32({1, 2, 6}), make_rotary_table(4, 4, 1e4), {.head_size = 4, .num_heads = 1});
       }},
      {"rotary",
       [] {
         rotary(f32({1, 2, 8}), make_rotary_table(4, 4, 1e4), {.head_size = 4, .num_heads = 3});
       }},
      {"rotary", [] { make_rotary_table(4, 3, 1e4); }},
      {"attention",
       [] {
         attention(f32({1, 2, 10}), {.num_heads = 2});
       }},
      {"attention",
       [] {
         attention(f32({2, 12}), {.num_heads = 2});
       }},
      {"attention",
       [] {
         attention(f32({1, 2, 12}), {.num_heads = 0});
       }},
      {"attention",
       [] {
         attention(f32({1, 2, 15}), {.num_heads = 3, .num_kv_heads = 2});
       }},
      {"attention",
       [] {
         attention(f32({1, 2, 12}), {.num_heads = 2, .dropout = 1.0});
       }},
      {"attention",
       [] {
         attention(f32({1, 2, 8}), f32({1, 3, 8}), f32({1, 2, 8}), {.num_heads = 2});
       }},
      {"attention",
       [] {
         attention(f32({1, 2, 8}), f32({1, 2, 4}), f32({1, 2, 4}), {.num_heads = 2});
       }},
      {"embedding", [] { embedding(ids({2}), f32({5})); }},
      {"embedding",
       [] {
         embedding(ids({4}), f32({5, 3}), f32({3, 3}));
       }},
      {"embedding",
       [] {
         embedding(ids({2}), f32({5, 3}), f32({3, 2}));
       }},
      {"softmax", [] { softmax(f32({})); }},
      {"cross_entropy",
       [] {
         cross_entropy(f32({2, 3}), ids({3}));
       }},
      {"linear_cross_entropy",
       [] {
         linear_cross_entropy(f32({2, 3}), f32({5, 4}), ids({2}));
       }},
      {"linear_cross_entropy",
       [] {
         linear_cross_entropy(f32({2, 3}), f32({5, 3}), ids({3}));
       }},
      {"linear_cross_entropy",
       [] {
         linear_cross_entropy(f32({2, 3}), f32({5, 3}), ids({2}), f32({4}));
       }},
      {"dropout", [] { dropout(f32({2}), {.probability = 1.5}); }},
      {"dropout_residual", [] { dropout_residual(f32({2}), f32({3}), {.probability = 0.5}); }},
      {"permute",
       [] {
         permute(f32({2, 3}), {0, 0});
       }},
      {"permute",
       [] {
         permute(f32({2, 3}), {0});
       }},
      {"transpose", [] { transpose(f32({2}), 0, 1); }},
      {"reshape",
       [] {
         reshape(f32({2, 3}), Shape{5});
       }},
      {"split",
       [] {
         split(f32({2, 3}), {1, 1}, 1);
       }},
      {"narrow",
       [] {
         narrow(f32({2, 3}), 1, 2, 2);
       }},
      {"concat",
       [] {
         concat({f32({2, 3}), f32({3, 3})}, 1);
       }},
      {"concat", [] { concat(std::vector<Tensor>{}, 0); }},
      {"sum", [] { sum(f32({})); }},
      {"gather_rows", [] { gather_rows(f32({2}), ids({2})); }},
      {"scatter_rows",
       [] {
         scatter_rows(f32({2, 3}), ids({3}), 4);
       }},
      {"value", [] { value(Weight()); }},
  };
}

TEST(OpErrors, BadOperands_AreRefusedByName) {
  const testing::Rank rank;
  int index = 0;
  for (const BadCall& bad : bad_calls()) {
    try {
      bad.call();
      ADD_FAILURE() << bad.op << ", call " << index << ": accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(bad.op + ":"))
          << bad.op << ", call " << index << ": " << error.what();
    }
    ++index;
  }
}

}  // namespace op_errors_test
}  // namespace zinc::autograd
