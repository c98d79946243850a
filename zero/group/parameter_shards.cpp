#include "zero/group/parameter_shards.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/host_stream.h"
#include "core/transfer.h"
#include "kernels/copy.h"
#include "kernels/fill.h"

namespace zinc::zero {

ParameterShards::ParameterShards(const ShardGroups& groups, const comm::Communicator& communicator,
                                 Context& context, const ParameterShardOptions& options)
    : groups_(groups),
      communicator_(communicator),
      context_(context),
      tier_(options.tier),
      shards_(groups.size()),
      tiles_(groups.size()) {
  std::vector<Tile> tiles;
  int64_t in_host = 0;
  for (const ShardGroup& group : groups_) {
    const int64_t numel = own_numel(group);
    if (numel == 0) continue;
    if (tier_ == Tier::nvme && in_host + numel > options.max_in_host) {
      for (const Tile& tile : parameter_tiles(group, communicator, options.buffer_numel)) {
        tiles_[group].push_back(tiles.size());
        tiles.push_back(tile);
      }
      continue;
    }
    in_host += numel;
    const Tier tier = tier_ == Tier::nvme ? Tier::pinned_host : tier_;
    const int64_t bytes = own_bytes(group);
    shards_[group] = context.allocate(bytes, Label::parameters, tier);
    const View all(shards_[group].data(), DType::u8, Shape{bytes}, context.device(), tier);
    kernels::fill({.y = host_memory(all)}, context.compute());
  }
  if (tiles.empty()) return;
  outdated_.assign(tiles.size(), false);
  const int64_t least = options.updates_in_parts ? 2 : 1;
  buffers_.resize(
      std::min(static_cast<size_t>(std::max(options.buffer_count, least)), tiles.size()));
  swapped_ = std::make_unique<SwappedShards>(groups, std::move(tiles), optim::States{},
                                             Label::parameters, context, options.swap);
  if (options.updates_during_passes) update_buffers_.resize(2);
  for (std::vector<Buffer>* buffers : {&buffers_, &update_buffers_}) {
    for (Buffer& buffer : *buffers) {
      buffer.memory =
          context.allocate(swapped_->largest_tile_bytes(), Label::staging, Tier::pinned_host);
    }
  }
  context.compute()->synchronize();  // before the disk touches the memory
}

ParameterShards::~ParameterShards() {
  // The buffers belong to the compute stream. Copies from them may be on other streams.
  for (const Buffer& buffer : buffers_) context_.compute()->wait(buffer.left);
}

Tier ParameterShards::tier_of(const ShardGroup& group) const {
  return shards_[group] ? shards_[group].tier() : tier_;
}

Range ParameterShards::own(const Segment& segment) const {
  return segment.shard(communicator_.rank(), communicator_.size());
}

int64_t ParameterShards::bytes_before(const ShardGroup& group, const Segment& segment) const {
  int64_t bytes = 0;
  for (const Segment& other : group.segments()) {
    if (other.kind == segment.kind) break;
    if (!is_persistent(other.kind)) bytes += other.encoding.bytes_of(own(other).size());
  }
  return bytes;
}

int64_t ParameterShards::own_bytes(const ShardGroup& group) const {
  return group.gathered_bytes() / communicator_.size();
}

int64_t ParameterShards::own_numel(const ShardGroup& group) const {
  int64_t numel = 0;
  for (const Segment& segment : group.segments()) {
    if (!is_persistent(segment.kind)) numel += own(segment).size();
  }
  return numel;
}

View ParameterShards::view(const ShardGroup& group, const Segment& segment, Range range) const {
  const Block& block = shards_[group];
  bug_check(static_cast<bool>(block), "the shards of group ", group.name(), " are in swap space");
  return segment.encoding.view(block, bytes_before(group, segment), range.from(own(segment).begin),
                               context_.device());
}

View ParameterShards::read(const ShardGroup& group, const Segment& segment, Range range) {
  if (tier_of(group) != Tier::nvme) return view(group, segment, range);
  // Tiles that were read ahead stay. An extent has one transfer at a time.
  for (Buffer& buffer : buffers_) finish(buffer);
  return swapped_->read(group, range, 0);
}

void ParameterShards::write(const ShardGroup& group, const Segment& segment, Range range,
                            const ConstView& values) {
  const Tier tier = tier_of(group);
  if (tier == Tier::device) {
    kernels::copy({.x = values, .y = view(group, segment, range)}, context_.compute());
    return;
  }
  // The device rounds to the stored dtype. Rounded values travel.
  const Block room = context_.allocate(segment.encoding.bytes_of(range.size()), Label::staging);
  const View rounded = segment.encoding.view(room, 0, {0, range.size()}, context_.device());
  kernels::copy({.x = values, .y = rounded}, context_.compute());
  if (tier == Tier::nvme) {
    forget();
    swapped_->write(group, range, 0, rounded);
  } else {
    transfer(rounded, view(group, segment, range), context_.compute());
    context_.compute()->synchronize();
  }
}

void ParameterShards::settle() {
  if (swapped_ != nullptr) swapped_->settle();
}

ParameterShards::Buffer* ParameterShards::holder_of(size_t tile) {
  for (Buffer& buffer : buffers_) {
    if (buffer.tile == tile) return &buffer;
  }
  return nullptr;
}

ParameterShards::Buffer& ParameterShards::free_buffer(const ShardGroup& group) {
  Buffer* chosen = nullptr;
  for (Buffer& buffer : buffers_) {
    if (!buffer.tile && (chosen == nullptr || buffer.left.query())) chosen = &buffer;
  }
  for (Buffer& buffer : buffers_) {
    if (chosen != nullptr) break;
    const Tile& held = swapped_->tiles()[*buffer.tile];
    if (held.group != group.index() && !buffer.is_update) chosen = &buffer;
  }
  for (Buffer& buffer : buffers_) {
    if (chosen == nullptr && !buffer.is_update) chosen = &buffer;
  }
  bug_check(chosen != nullptr, "a tile of parameters was updated in part");
  finish(*chosen);
  chosen->left.wait();
  chosen->tile.reset();
  return *chosen;
}

void ParameterShards::start_read(Buffer& buffer, size_t tile) {
  buffer.transfer = swapped_->start_read(tile, buffer.memory);
  buffer.written.reset();
  buffer.tile = tile;
}

void ParameterShards::finish(Buffer& buffer) {
  try {
    buffer.transfer.wait();
  } catch (...) {
    if (buffer.transfer.is_over()) buffer.tile.reset();
    throw;
  }
}

void ParameterShards::read_ahead(const std::vector<int>& groups) {
  if (swapped_ == nullptr) return;
  for (const int index : groups) {
    for (const size_t tile : tiles_[index]) {
      if (holder_of(tile) != nullptr) continue;
      if (!is_current(tile, false)) return;
      const auto free = std::find_if(buffers_.begin(), buffers_.end(), [](const Buffer& buffer) {
        return !buffer.tile && buffer.left.query();
      });
      if (free == buffers_.end()) return;
      free->transfer.wait();
      start_read(*free, tile);
    }
  }
}

void ParameterShards::bring(const ShardGroup& group, const Destination& place, StreamRef stream) {
  if (tier_of(group) != Tier::nvme) {
    for (const Segment& segment : group.segments()) {
      if (is_persistent(segment.kind)) continue;
      transfer(view(group, segment, own(segment)), place(segment), stream);
    }
    return;
  }
  for (const size_t index : tiles_[group]) {
    const Tile& tile = swapped_->tiles()[index];
    Buffer* buffer = holder_of(index);
    if (buffer == nullptr) {
      bug_check(is_current(index, true), "parameters of ", group.name(), " were not updated");
      buffer = &free_buffer(group);
      start_read(*buffer, index);
    }
    finish(*buffer);
    const Segment& segment = group.segment(tile.segment);
    const View target = tile.encoding.part(place(segment), tile.range.from(own(segment).begin));
    transfer(swapped_->plane(tile, buffer->memory, 0), target, stream);
    buffer->left = stream->record();
    buffer->tile.reset();
  }
}

void ParameterShards::take_updated(const ShardGroup& group, Range range, const ConstView& values,
                                   StreamRef stream) {
  for (const size_t index : tiles_[group]) {
    const Tile& tile = swapped_->tiles()[index];
    const Range inside = intersect(tile.range, range);
    if (inside.empty()) continue;
    Buffer& buffer = update_buffer(group, index);
    stream->wait(buffer.filled);  // the event may be of another stream: Note [Split states]
    transfer(values.narrow(0, inside.begin - range.begin, inside.size()),
             swapped_->plane(tile, buffer.memory, 0)
                 .narrow(0, inside.begin - tile.range.begin, inside.size()),
             stream);
    buffer.filled = stream->record();
    if (inside.end == tile.range.end) write_behind(buffer, stream);
  }
}

ParameterShards::Buffer& ParameterShards::update_buffer(const ShardGroup& group, size_t tile) {
  Buffer* buffer = nullptr;
  if (update_buffers_.empty()) {
    buffer = holder_of(tile);
    if (buffer != nullptr && buffer->is_update) return *buffer;
    if (buffer == nullptr) buffer = &free_buffer(group);
  } else {
    for (Buffer& open : update_buffers_) {
      if (open.is_update && open.tile == tile) return open;
    }
    for (size_t i = 0; i < update_buffers_.size(); ++i) {
      buffer = &update_buffers_[next_update_++ % update_buffers_.size()];
      if (!buffer->is_update) break;
    }
    bug_check(!buffer->is_update, "a tile of parameters was updated in part");
  }
  land(*buffer);
  buffer->tile = tile;
  buffer->is_update = true;
  return *buffer;
}

void ParameterShards::write_behind(Buffer& buffer, StreamRef stream) {
  stream->synchronize();  // the disk reads the buffer when the copies are over
  buffer.transfer = swapped_->start_write(*buffer.tile, buffer.memory);
  buffer.is_update = false;
  buffer.written = std::exchange(buffer.tile, std::nullopt);
}

void ParameterShards::land(Buffer& buffer) {
  buffer.transfer.wait();
  if (const auto tile = std::exchange(buffer.written, std::nullopt)) outdated_[*tile] = false;
}

bool ParameterShards::is_current(size_t tile, bool wait) {
  for (Buffer& buffer : update_buffers_) {
    if (buffer.written == tile && (wait || buffer.transfer.query())) land(buffer);
  }
  return !outdated_[tile];
}

void ParameterShards::expect_updates() {
  bug_check(swapped_ == nullptr || !update_buffers_.empty(),
            "updates have no buffers of their own");
  // Tiles that were read ahead hold old values.
  forget();
  if (swapped_ == nullptr) return;
  for (size_t tile = 0; tile < outdated_.size(); ++tile) {
    outdated_[tile] = is_trained(swapped_->tiles()[tile].segment);
  }
}

void ParameterShards::finish_update() {
  for (std::vector<Buffer>* buffers : {&buffers_, &update_buffers_}) {
    for (Buffer& buffer : *buffers) {
      bug_check(!buffer.is_update, "a tile of parameters was updated in part");
      land(buffer);
      // The next reads must not depend on how far the copies of the passes have come.
      buffer.left.wait();
    }
  }
}

void ParameterShards::forget() {
  for (Buffer& buffer : buffers_) {
    finish(buffer);
    buffer.tile.reset();
  }
}

}  // namespace zinc::zero
