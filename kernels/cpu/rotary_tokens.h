// kernels/cpu/rotary_tokens.h: what the f64 and the vector path of rotary share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/rotary.h"

namespace zinc::kernels::cpu {

// Row of the table for token i = b * T + t.
inline int64_t rotary_position(const Rotary& args, int64_t i) {
  if (!args.positions) return args.start + i % args.q.dim(1);
  return args.positions.dtype() == DType::i32 ? args.positions.data_as<int32_t>()[i]
                                              : args.positions.data_as<int64_t>()[i];
}

// Tokens of a thread's turn.
inline int64_t rotary_grain(const Rotary& args) {
  const int64_t heads = args.q.dim(2) + (args.k ? args.k.dim(2) : 0);
  return std::max<int64_t>(1, (1 << 13) / (2 * args.cos.cols() * heads + 1));
}

}  // namespace zinc::kernels::cpu
