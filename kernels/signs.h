// kernels/signs.h: arrays as signs, with one scale for every chunk of 1024 elements: one bit an
// element and 4 bytes a chunk.
//   value(i) = x_i >= 0 ? scale : -scale        (-scale for a NaN)
// After Tang et al., "1-bit Adam", ICML 2021, section 4.2, with scales of chunks.
//
// Bit i % 8 of byte i / 8 is 1 where the value is +scale. Behind the first counts[k] elements of
// chunk k there is padding, whose bits are 0 and whose values are 0. All views are contiguous, n is
// a multiple of kSignChunk. Asynchronous on `stream`. Deterministic, the same bits on every device.
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/view.h"
#include "kernels/cost.h"

namespace zinc::kernels {

inline constexpr int64_t kSignChunk = 1024;  // elements

// scales[k] = sqrt(sum of squares / number of elements) of the run of chunks that k lies in: the
// root of the mean square, in f64, rounded once. 0 for runs without elements.
struct SignScales {
  ConstView sums;    // [k] f64: of squares, of each chunk (kernels/finite_norm.h)
  ConstView counts;  // [k] i32, 0 to kSignChunk: elements of each chunk that are no padding
  // [r + 1] i64, ascending from 0 to k: run i holds the chunks [runs[i], runs[i + 1]), whose sums
  // are added in order. Absent: every chunk is a run.
  ConstView runs{};
  View scales;  // [k] f32, overwrites
};
void sign_scales(const SignScales& args, StreamRef stream);
Cost cost(const SignScales& args);

struct EncodeSigns {
  ConstView x;       // [n] f32
  ConstView scales;  // [n / kSignChunk] f32
  ConstView counts;  // [n / kSignChunk] i32
  View bits;         // [n / 8] u8, overwrites
  View residual;     // [n] f32, overwrites: x - value; may be x; 0 in padding; may be absent
};
void encode_signs(const EncodeSigns& args, StreamRef stream);
Cost cost(const EncodeSigns& args);

// Scales, signs and residual of t in one pass, with one scale a chunk. Per element, each line
// rounded to nearest even:
//   s = last_scale * last_factor
//   t = fma(share, x, last value with s) + residual
// Then as sign_scales() of the sums that finite_norm() makes of t, and encode_signs() of t.
struct SendSigns {
  ConstView x;  // [n] f32
  double share = 1.0;
  ConstView last_bits;  // [n / 8] u8; absent, with last_scales: all values are 0
  ConstView last_scales;
  double last_factor = 1.0;
  ConstView counts;  // [n / kSignChunk] i32
  View residual;     // [n] f32, in place; may not overlap x
  View bits;         // [n / 8] u8, overwrites
  View scales;       // [n / kSignChunk] f32, overwrites
};
void send_signs(const SendSigns& args, StreamRef stream);
Cost cost(const SendSigns& args);

// y = keep * y + factor * value + addend. Per element, each line rounded to nearest even:
//   s = scale * factor
//   t = keep == 0 ? value with s : fma(keep, y, value with s)
//   y = t + addend       where there is an addend
struct DecodeSigns {
  ConstView bits;    // [n / 8] u8; absent, with `scales`: all values are 0
  ConstView scales;  // [n / kSignChunk] f32
  ConstView counts;  // [n / kSignChunk] i32
  double factor = 1.0;
  double keep = 0.0;   // 0: y is overwritten, and not read
  ConstView addend{};  // [n] f32; may be absent
  View y;              // [n] f32; 0 in padding
};
void decode_signs(const DecodeSigns& args, StreamRef stream);
Cost cost(const DecodeSigns& args);

}  // namespace zinc::kernels
