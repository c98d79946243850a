// kernels/binary.h: element-wise functions of two arguments, and their derivatives.
// y[i] = op(a[i], b[i]), where a and b stretch to the shape of y (kernels/broadcast.h)
//
// The functions: kernels/elementwise_table.h. 16-bit floats are computed in f32 and rounded once.
// max and min: where a == b the gradient goes to a; a NaN on either side gives NaN.
#pragma once

#include <string_view>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"
#include "kernels/elementwise_table.h"

namespace zinc::kernels {

std::string_view name_of(BinaryOp op);

struct Binary {
  BinaryOp op = BinaryOp::add;
  ConstView a;  // f64 | f32 | bf16 | f16; stretches to the shape of y; outer strides are free
  ConstView b;  // dtype of a; stretches to the shape of y; outer strides are free
  View y;       // dtype of a, overwrites; may be a or b itself; outer strides are free
};

// Gradients per element, and for a b that is repeated as a row (its shape is that of y's last
// dimensions, or one element) the sum over the repetitions.
struct BinaryBackward {
  BinaryOp op = BinaryOp::add;
  ConstView a{};  // as in the forward pass; not read, and may be absent, for add and sub
  ConstView b;    // as in the forward pass; not read for add and sub, but its shape is that of db
  ConstView dy;   // shape and dtype of the forward's y. Where db is a sum, dy is contiguous, a too,
                  // which then has the shape of dy.
  View da{};      // shape of dy, overwrites; dtype of dy or f32; may be absent; may be dy itself
                  // unless db is wanted too
  View db{};      // shape of dy: per element; or the shape of b: the sum over repetitions in f32
                  // (f64), rounded once, contiguous. Dtype of dy or f32; may be absent.
  bool accumulate_db = false;  // add to db (in f32, then round) instead of overwriting
};

// Asynchronous on `stream`. Deterministic.
void binary(const Binary& args, StreamRef stream);
void binary_backward(const BinaryBackward& args, StreamRef stream);
Cost cost(const Binary& args);
Cost cost(const BinaryBackward& args);

}  // namespace zinc::kernels
