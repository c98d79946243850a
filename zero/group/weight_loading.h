// zero/group/weight_loading.h: values of a range of a parameter from outside the engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/context.h"
#include "core/transfer.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// Elements of a parameter that pass through staging memory at once, in files and out of them.
inline constexpr int64_t kPieceNumel = int64_t{1} << 20;

// `read` to memory of the context's device, which may not be the host's.
inline void read_values(Context& context, const ReadValues& read,
                        const autograd::Parameter& parameter, int64_t begin, const View& out) {
  if (context.device().is_cpu()) return read(parameter, begin, out);
  std::vector<std::byte> values(static_cast<size_t>(out.bytes()));
  read(parameter, begin, View(values.data(), out.dtype(), out.shape(), kCpu));
  upload(values.data(), out, context.compute());
}

// Reads elements [piece) (of the arena) of a parameter, kPieceNumel at most, in f32 (f64 for f64
// models) into a staging buffer, and hands them over: store(values). Waits. On a meta device
// nothing is read.
template <class Store>
void load_range(Context& context, const ReadValues& read, const Placement& placement, Range piece,
                const Store& store) {
  if (piece.empty()) return;
  const DType wide = placement.parameter->dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Block room = context.allocate(piece.size() * size_of(wide), Label::staging);
  const View values(room.data(), wide, Shape{piece.size()}, context.device());
  if (!context.device().meta) {
    // The host fills the room next, and what was issued for its memory before comes first.
    context.compute()->synchronize();
    read_values(context, read, *placement.parameter, piece.begin - placement.offset, values);
  }
  store(values);
  context.compute()->synchronize();
}

}  // namespace zinc::zero
