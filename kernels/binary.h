// kernels/binary.h: element-wise functions of two arguments, the second broadcast over leading
// dimensions, and their derivatives.
// y[i, j] = op(a[i, j], b[j]), where j runs over the dimensions of b and i over those before them.
//
// 16-bit floats are computed in f32 and rounded once. min and max: where a == b the gradient goes
// to a; a NaN on either side gives NaN.
#pragma once

#include <string_view>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

enum class BinaryOp : uint8_t { add, sub, mul, div, max, min };
std::string_view name_of(BinaryOp op);

struct Binary {
  BinaryOp op = BinaryOp::add;
  ConstView a;  // any shape, f64 | f32 | bf16 | f16; outer strides are free
  ConstView b;  // dtype of a; shape of a (outer strides are free), or its last dimensions
                // (contiguous), or one element
  View y;  // shape and dtype of a, overwrites; may be a itself, or b itself where shapes agree;
           // outer strides are free
};

struct BinaryScalar {
  BinaryOp op = BinaryOp::add;
  ConstView a;     // any shape, f64 | f32 | bf16 | f16; outer strides are free
  double b = 0.0;  // rounded to f32 first unless a is f64
  View y;          // shape and dtype of a, overwrites; may be a itself; outer strides are free
};

struct BinaryBackward {
  BinaryOp op = BinaryOp::add;
  ConstView a{};  // as in the forward pass; not read, and may be absent, for add and sub
  ConstView b;    // as in the forward pass; not read for add and sub, but its shape is that of db
  ConstView
      dy;     // shape and dtype of a. Where db is wanted of a broadcast b, a and dy are contiguous.
  View da{};  // shape of a, overwrites; may be absent; may be dy itself unless db is wanted too
  View db{};  // shape of b, contiguous where broadcast, dtype of b or f32; may be absent. Sums
              // over the broadcast dimensions are in f32 (f64) and rounded once.
  bool accumulate_db = false;  // add to db (in f32, then round) instead of overwriting
};

// Asynchronous on `stream`. Deterministic.
void binary(const Binary& args, StreamRef stream);
void binary_scalar(const BinaryScalar& args, StreamRef stream);
void binary_backward(const BinaryBackward& args, StreamRef stream);
Cost cost(const Binary& args);
Cost cost(const BinaryScalar& args);
Cost cost(const BinaryBackward& args);

}  // namespace zinc::kernels
