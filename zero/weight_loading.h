// zero/weight_loading.h: the first values of a range of a parameter.
#pragma once

#include "core/context.h"
#include "nn/module.h"
#include "zero/shard_group.h"

namespace zinc::zero {

// Reads elements [range) (of the arena) of a parameter, in f32 (f64 for f64 models), piece by piece
// through a small staging buffer, and hands each piece over: store(piece of the arena, values).
// Waits. On a meta device it takes the buffer and reads nothing.
template <class Store>
void load_range(Context& context, const nn::WeightSource& source, const Placement& placement,
                Range range, const Store& store) {
  constexpr int64_t kPieceNumel = int64_t{1} << 20;
  if (range.empty()) return;
  const DType wide = placement.parameter->dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Block room =
      context.allocate(std::min(range.size(), kPieceNumel) * size_of(wide), Label::staging);
  if (context.device().meta) return;
  for (int64_t begin = range.begin; begin < range.end; begin += kPieceNumel) {
    const Range piece{begin, std::min(begin + kPieceNumel, range.end)};
    const View values(room.data(), wide, Shape{piece.size()}, context.device());
    source.read(*placement.parameter, piece.begin - placement.offset, values);
    store(piece, values);
    context.compute()->synchronize();
  }
}

}  // namespace zinc::zero
