#include "zero/tiers/swapped_shards.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/error.h"
#include "core/transfer.h"

namespace zinc::zero {
namespace {

void cut(const ShardGroup& group, const Segment& segment, const comm::Communicator& communicator,
         const Encoding& encoding, int64_t most, std::vector<Tile>& tiles,
         Planes planes = Tile().planes) {
  require(most > 0, "swap space: tiles of ", most, " elements");
  // A tile of 16-bit or encoded values has a multiple of kShardUnit elements, which are whole pages
  // in 16 bits. A wider tile has whole chunks.
  const int64_t unit = size_of(encoding.dtype) < 4 ? kShardUnit : kNormChunk;
  const int64_t length = (most + unit - 1) / unit * unit;
  const Range own = segment.shard(communicator.rank(), communicator.size());
  for (int64_t begin = own.begin; begin < own.end; begin += length) {
    tiles.push_back({.group = group.index(),
                     .segment = segment.kind,
                     .range = {begin, std::min(begin + length, own.end)},
                     .encoding = encoding,
                     .planes = planes});
  }
}

}  // namespace

offload::SwapSettings swap_settings(const EngineConfig& config, const OffloadConfig& offload,
                                    offload::SwapClock* clock) {
  return {.directory = offload.nvme_path,
          .storage = {.block_size = config.aio.block_size,
                      .queue_depth = config.aio.queue_depth,
                      .threads = config.aio.threads,
                      .single_submit = config.aio.single_submit,
                      .overlap_events = config.aio.overlap_events},
          .verify = config.verify_swap,
          .clock = clock};
}

std::vector<Tile> optimizer_tiles(const ShardGroups& groups, const comm::Communicator& communicator,
                                  const optim::States& states, int64_t most) {
  std::vector<Tile> tiles;
  for (const ShardGroup& group : groups) {
    const Encoding wide{.dtype = group.wide_dtype()};
    for (const Segment& segment : group.segments()) {
      if (!is_trained(segment.kind)) continue;
      const Planes of_states = state_planes(states, segment.kind);
      if (segment.kind != SegmentKind::whole) {
        cut(group, segment, communicator, wide, most, tiles, {kMasterPlane, of_states.end});
        continue;
      }
      cut(group, segment, communicator, wide, most, tiles);
      if (of_states.count() > 0) cut(group, segment, communicator, wide, most, tiles, of_states);
    }
  }
  return tiles;
}

std::vector<Tile> parameter_tiles(const ShardGroup& group, const comm::Communicator& communicator,
                                  int64_t most) {
  std::vector<Tile> tiles;
  for (const Segment& segment : group.segments()) {
    if (is_persistent(segment.kind)) continue;
    cut(group, segment, communicator, segment.encoding, most, tiles);
  }
  return tiles;
}

SwappedShards::SwappedShards(const ShardGroups& groups, std::vector<Tile> tiles,
                             const optim::States& states, Label label, Context& context,
                             const offload::SwapSettings& settings)
    : groups_(groups), context_(context), states_(states), tiles_(std::move(tiles)) {
  std::vector<int64_t> extent_bytes;
  for (const Tile& tile : tiles_) extent_bytes.push_back(bytes_of(tile));
  for (const ShardGroup& group : groups) {
    names_.push_back(str(label == Label::gradients ? "gradients of " : "", group.name()));
  }
  written_.assign(tiles_.size(), false);
  extents_ = std::make_unique<offload::SwapExtents>(extent_bytes, label, context, settings);
}

Encoding SwappedShards::encoding_of(const Tile& tile, int plane) const {
  const bool is_plain = tile.encoding.dtype == DType::f32 || tile.encoding.dtype == DType::f64;
  if (plane < kFirstStatePlane && !is_plain) return tile.encoding;
  return plane_encoding(states_, plane, tile.encoding.dtype);
}

int64_t SwappedShards::plane_offset(const Tile& tile, int plane) const {
  int64_t offset = 0;
  for (int i = tile.planes.begin; i < plane; ++i)
    offset += encoding_of(tile, i).bytes_of(tile.range.size());
  return offset;
}

int64_t SwappedShards::bytes_of(const Tile& tile) const {
  return offload::whole_pages(plane_offset(tile, tile.planes.end));
}

int64_t SwappedShards::largest_tile_bytes() const {
  int64_t largest = 0;
  for (const Tile& tile : tiles_) largest = std::max(largest, bytes_of(tile));
  return largest;
}

View SwappedShards::plane(const Tile& tile, const Block& memory, int index) const {
  if (!tile.planes.has(index)) return {};
  const Encoding encoding = encoding_of(tile, index);
  return {static_cast<std::byte*>(memory.data()) + plane_offset(tile, index), encoding.dtype,
          Shape{encoding.numel_of(tile.range.size())}, context_.device(), Tier::pinned_host};
}

void SwappedShards::load(size_t tile) {
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

void SwappedShards::flush() {
  if (!changed_) return;
  context_.compute()->synchronize();
  start_write(static_cast<size_t>(cached_), cache_).wait();
  changed_ = false;
}

View SwappedShards::read(const ShardGroup& group, Range range, int index) {
  const auto tile = std::find_if(tiles_.begin(), tiles_.end(), [&](const Tile& t) {
    return t.group == group.index() && t.planes.has(index) && t.range.begin <= range.begin &&
           range.begin < t.range.end;
  });
  bug_check(tile != tiles_.end(), "elements of group ", group.name(),
            " are not in this swap space");
  load(static_cast<size_t>(tile - tiles_.begin()));
  const Range inside = intersect(tile->range, range);
  return encoding_of(*tile, index)
      .part(plane(*tile, cache_, index), inside.from(tile->range.begin));
}

void SwappedShards::write(const ShardGroup& group, Range range, int index,
                          const ConstView& values) {
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const Tile& tile = tiles_[i];
    const Range inside = intersect(tile.range, range);
    if (tile.group != group.index() || !tile.planes.has(index) || inside.empty()) continue;
    load(i);
    const Encoding encoding = encoding_of(tile, index);
    transfer(encoding.part(values, inside.from(range.begin)),
             encoding.part(plane(tile, cache_, index), inside.from(tile.range.begin)),
             context_.compute());
    context_.compute()->synchronize();
    changed_ = true;
  }
}

void SwappedShards::settle() {
  flush();
  // Tiles that were never written hold zeros: padding, and all states at the start.
  for (size_t i = 0; i < tiles_.size(); ++i) {
    if (written_[i]) continue;
    load(i);
    changed_ = true;
    flush();
  }
  forget();
}

void SwappedShards::forget() {
  bug_check(!changed_, "values that were not written to swap space are forgotten");
  cached_ = -1;
  cache_.reset();
}

offload::SwapSpace::Transfer SwappedShards::start_read(size_t tile, const Block& memory) {
  return extents_->start_read(tile, memory, name_of_group(tile));
}

offload::SwapSpace::Transfer SwappedShards::start_write(size_t tile, const Block& memory) {
  written_[tile] = true;
  return extents_->start_write(tile, memory, name_of_group(tile));
}

const std::string& SwappedShards::name_of_group(size_t tile) const {
  return names_[tiles_[tile].group];
}

}  // namespace zinc::zero
