// kernels/fp8_encode.h: a matrix as codes of 8 bits with a scale of its own ("current scaling"),
// and back: Note [Scales of 8 bits] in core/float8.h. Products take the codes: kernels/gemm.h.
#pragma once

#include "core/float8.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

// A scale: the largest magnitude of the matrix (NaN where it has one), and the factor that turns a
// code's value into the element.
inline constexpr int64_t kFp8ScaleNumel = 2;

// One pass gives both forms, which products of different operands ask for.
struct Fp8Encode {
  ConstView x;  // [rows, cols] bf16, the row stride is free
  Fp8 format = Fp8::e4m3;
  View codes{};           // optional [rows, cols] u8, contiguous
  View transposed{};      // optional [cols, rows] u8, contiguous
  View scale;             // [kFp8ScaleNumel] f32, overwritten
  bool is_known = false;  // scale is only read: an earlier call for this matrix has found it
};

// Asynchronous on `stream`. The same bits on every device. NaN and infinities of x become NaN, and
// the rest then has no scale. Throws InvalidArgument for wrong shapes and dtypes.
void fp8_encode(const Fp8Encode& args, StreamRef stream);
Cost cost(const Fp8Encode& args);

// y = the values that the codes stand for, exactly.
struct Fp8Decode {
  ConstView codes;  // [rows, cols] u8, the row stride is free
  Fp8 format = Fp8::e4m3;
  ConstView scale;  // [kFp8ScaleNumel] f32
  View y;           // [rows, cols] bf16, contiguous
};
void fp8_decode(const Fp8Decode& args, StreamRef stream);
Cost cost(const Fp8Decode& args);

}  // namespace zinc::kernels
