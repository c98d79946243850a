// zero/weight_loading.h: the first values of a range of a parameter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/context.h"
#include "core/transfer.h"
#include "nn/module.h"
#include "zero/shard_group.h"

namespace zinc::zero {

// source.read() to memory of the context's device, which may not be the host's.
inline void read_values(Context& context, const nn::WeightSource& source,
                        const autograd::Parameter& parameter, int64_t begin, const View& out) {
  if (context.device().is_cpu()) return source.read(parameter, begin, out);
  std::vector<std::byte> values(static_cast<size_t>(out.bytes()));
  source.read(parameter, begin, View(values.data(), out.dtype(), out.shape(), kCpu));
  upload(values.data(), out, context.compute());
}

// Reads elements [range) (of the arena) of a parameter, in f32 (f64 for f64 models), piece by piece
// through a small staging buffer, and hands each piece over: store(piece of the arena, values).
// Waits. On a meta device nothing is read and one piece is handed over.
template <class Store>
void load_range(Context& context, const nn::WeightSource& source, const Placement& placement,
                Range range, const Store& store) {
  constexpr int64_t kPieceNumel = int64_t{1} << 20;
  if (range.empty()) return;
  const DType wide = placement.parameter->dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Block room =
      context.allocate(std::min(range.size(), kPieceNumel) * size_of(wide), Label::staging);
  if (context.device().meta) {
    // For what store() allocates; every piece takes as much.
    const Range piece{range.begin, std::min(range.begin + kPieceNumel, range.end)};
    store(piece, View(room.data(), wide, Shape{piece.size()}, context.device()));
    return;
  }
  // The host fills the room next, and what was issued for its memory before comes first.
  context.compute()->synchronize();
  for (int64_t begin = range.begin; begin < range.end; begin += kPieceNumel) {
    const Range piece{begin, std::min(begin + kPieceNumel, range.end)};
    const View values(room.data(), wide, Shape{piece.size()}, context.device());
    read_values(context, source, *placement.parameter, piece.begin - placement.offset, values);
    store(piece, values);
    context.compute()->synchronize();
  }
}

}  // namespace zinc::zero
