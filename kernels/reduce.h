// kernels/reduce.h: sum, mean and maximum over the last dimension, over the leading ones, or over
// all, and their derivatives. The sum over leading dimensions is the gradient of a bias.
//
// Note [Order of sums]
// Sums are in f32 (f64 for f64) in an order that is a function of the shape alone: a row is added
// in 16 lanes (lane l takes the elements l, l + 16, ...) over blocks of 1024 elements, each block's
// lanes are added as a binary tree, and block sums are added as the binary tree of their indices
// (an absent leaf is skipped). A column is added over blocks of 64 rows in order, block sums as the
// binary tree of their indices. So bits depend neither on threads nor on the SIMD width.
#pragma once

#include <string_view>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

enum class ReduceOp : uint8_t { sum, mean, max };
enum class ReduceOver : uint8_t {
  last,     // y has the shape of x without its last dimension
  leading,  // y: [last dimension of x]
  all,      // y: one element, shape [] or [1]; x is contiguous
};
std::string_view name_of(ReduceOp op);

// Seen as [rows, cols], cols the last dimension. The mean of nothing is NaN, the maximum of nothing
// is an error, a NaN in x makes its maximum NaN.
struct Reduce {
  ReduceOp op = ReduceOp::sum;
  ReduceOver over = ReduceOver::last;
  ConstView x;  // any shape of rank >= 1, f64 | f32 | bf16 | f16; rows at one stride
  View y;       // shape as `over` says, contiguous, dtype of x or f32; must not overlap x
  bool accumulate = false;  // add to y (in f32, then round) instead of overwriting
};

struct ReduceBackward {
  ReduceOp op = ReduceOp::sum;
  ReduceOver over = ReduceOver::last;
  ConstView dy;  // shape of the forward's y, contiguous, dtype of dx or f32
  ConstView x;   // max only: the forward's argument, shape and dtype of dx, rows at one stride
  View dx;       // shape of the forward's x, overwrites; rows at one stride. max: the gradient goes
                 // to the first element that equals the maximum.
};

// Asynchronous on `stream`. Deterministic.
void reduce(const Reduce& args, StreamRef stream);
void reduce_backward(const ReduceBackward& args, StreamRef stream);
Cost cost(const Reduce& args);
Cost cost(const ReduceBackward& args);

}  // namespace zinc::kernels
