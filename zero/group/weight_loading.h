// zero/group/weight_loading.h: brings values from outside the engine to a staging buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/context.h"
#include "core/transfer.h"
#include "zero/group/weight_store.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// The largest number of elements that pass through staging memory at once, to and from files.
inline constexpr int64_t kPieceNumel = int64_t{1} << 20;

// Calls `read` for contiguous memory of the context's device, on a GPU by way of host memory.
inline void read_values(Context& context, const ReadValues& read,
                        const autograd::Parameter& parameter, int64_t begin, const View& out) {
  if (context.device().is_cpu()) return read(parameter, begin, out);
  std::vector<std::byte> values(static_cast<size_t>(out.bytes()));
  read(parameter, begin, View(values.data(), out.dtype(), out.shape(), kCpu));
  upload(values.data(), out, context.compute());
}

// Reads elements `piece` of a parameter, counted in its arena, into a staging buffer and calls
// store(values). `piece`: kPieceNumel elements at most. values: [piece.size()] f32 (f64 models:
// f64) on the device. Waits for the compute stream. On a meta device nothing is read.
template <class Store>
void load_range(Context& context, const ReadValues& read, const Placement& placement, Range piece,
                const Store& store) {
  if (piece.empty()) return;
  const DType wide = placement.parameter->dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Block room = context.allocate(piece.size() * size_of(wide), Label::staging);
  const View values(room.data(), wide, Shape{piece.size()}, context.device());
  if (!context.device().meta) {
    // Earlier work on this memory must end before the host fills it.
    context.compute()->synchronize();
    read_values(context, read, *placement.parameter, piece.begin - placement.offset, values);
  }
  store(values);
  context.compute()->synchronize();
}

}  // namespace zinc::zero
