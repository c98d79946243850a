#include "zero/swapped_states.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/error.h"
#include "core/transfer.h"

namespace zinc::zero {
namespace {

std::span<std::byte> bytes_in(const Block& memory, int64_t bytes) {
  return {static_cast<std::byte*>(memory.data()), static_cast<size_t>(bytes)};
}

}  // namespace

SwappedStates::SwappedStates(const std::vector<ShardGroup>& groups,
                             const comm::Communicator& communicator, Context& context,
                             int num_states, const SwapSettings& settings)
    : context_(context), num_planes_(1 + num_states) {
  require(settings.tile_numel > 0, "swapped states: tiles of ", settings.tile_numel, " elements");
  const int64_t most = (settings.tile_numel + kNormChunk - 1) / kNormChunk * kNormChunk;
  offload::SwapOptions swap{.directory = settings.directory, .verify = settings.verify};
  for (const ShardGroup& group : groups) {
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      const Range own = segment.shard(communicator.rank(), communicator.size());
      for (int64_t begin = own.begin; begin < own.end; begin += most) {
        tiles_.push_back({.group = group.index(),
                          .segment = segment.kind,
                          .range = {begin, std::min(begin + most, own.end)},
                          .dtype = group.dtype() == DType::f64 ? DType::f64 : DType::f32});
        swap.extent_bytes.push_back(bytes_of(tiles_.back()));
        bytes_ += bytes_of(tiles_.back());
      }
    }
  }
  written_.assign(tiles_.size(), false);
  if (!context.device().meta) {
    storage_ = offload::make_storage(settings.storage);
    space_ = std::make_unique<offload::SwapSpace>(*storage_, swap);
    bug_check(space_->bytes() == bytes_, "tiles do not fill whole pages of swap");
  }
  context.allocator().count_storage(Label::optimizer, bytes_);
}

SwappedStates::~SwappedStates() { context_.allocator().count_storage(Label::optimizer, -bytes_); }

int64_t SwappedStates::largest_tile_bytes() const {
  int64_t largest = 0;
  for (const Tile& tile : tiles_) largest = std::max(largest, bytes_of(tile));
  return largest;
}

View SwappedStates::plane(const Tile& tile, const Block& memory, int index) const {
  return {static_cast<std::byte*>(memory.data()) + index * tile.plane_bytes(), tile.dtype,
          Shape{tile.range.size()}, context_.device(), Tier::pinned_host};
}

void SwappedStates::load(size_t tile) {
  if (cached_ == static_cast<int64_t>(tile)) return;
  flush();
  if (!cache_) {
    cache_ = context_.allocate(largest_tile_bytes(), Label::staging, Tier::pinned_host);
  }
  context_.compute()->synchronize();  // before the host touches the memory
  if (written_[tile]) {
    start_read(tile, cache_).wait();
  } else if (!context_.device().meta) {
    std::memset(cache_.data(), 0, static_cast<size_t>(bytes_of(tiles_[tile])));
  }
  cached_ = static_cast<int64_t>(tile);
}

void SwappedStates::flush() {
  if (!changed_) return;
  context_.compute()->synchronize();
  start_write(static_cast<size_t>(cached_), cache_).wait();
  changed_ = false;
}

View SwappedStates::read(const ShardGroup& group, Range range, int index) {
  const DType dtype = group.dtype() == DType::f64 ? DType::f64 : DType::f32;
  values_ = context_.allocate(range.size() * size_of(dtype), Label::staging, Tier::pinned_host);
  const View values(values_.data(), dtype, Shape{range.size()}, context_.device(),
                    Tier::pinned_host);
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const Tile& tile = tiles_[i];
    const Range inside = intersect(tile.range, range);
    if (tile.group != group.index() || inside.empty()) continue;
    load(i);
    transfer(plane(tile, cache_, index).narrow(0, inside.begin - tile.range.begin, inside.size()),
             values.narrow(0, inside.begin - range.begin, inside.size()), context_.compute());
    context_.compute()->synchronize();
  }
  return values;
}

void SwappedStates::write(const ShardGroup& group, Range range, int index,
                          const ConstView& values) {
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const Tile& tile = tiles_[i];
    const Range inside = intersect(tile.range, range);
    if (tile.group != group.index() || inside.empty()) continue;
    load(i);
    transfer(values.narrow(0, inside.begin - range.begin, inside.size()),
             plane(tile, cache_, index).narrow(0, inside.begin - tile.range.begin, inside.size()),
             context_.compute());
    context_.compute()->synchronize();
    changed_ = true;
  }
}

void SwappedStates::settle() {
  flush();
  // What was never written is zero: padding, and all states at the start.
  for (size_t i = 0; i < tiles_.size(); ++i) {
    if (written_[i]) continue;
    load(i);
    changed_ = true;
    flush();
  }
  cached_ = -1;
  cache_.reset();
  values_.reset();
}

offload::SwapSpace::Transfer SwappedStates::start_read(size_t tile, const Block& memory) {
  if (space_ == nullptr) {
    meta_read_ += bytes_of(tiles_[tile]);
    return {};
  }
  return space_->read(static_cast<int>(tile), bytes_in(memory, bytes_of(tiles_[tile])));
}

offload::SwapSpace::Transfer SwappedStates::start_write(size_t tile, const Block& memory) {
  written_[tile] = true;
  if (space_ == nullptr) {
    meta_written_ += bytes_of(tiles_[tile]);
    return {};
  }
  return space_->write(static_cast<int>(tile), bytes_in(memory, bytes_of(tiles_[tile])));
}

}  // namespace zinc::zero
