#include "zero/update/swapped_tiles.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::zero {

SwappedTiles::SwappedTiles(GradientStore& gradients, const std::vector<UpdatedRange>& slices,
                           Context& context, HostTileUpdate& update,
                           const SwappedTilesOptions& options)
    : gradients_(gradients),
      slices_(slices),
      context_(context),
      options_(options),
      update_(update),
      buffers_(1 + (options.read_ahead ? 1 : 0) + (options.write_behind ? 1 : 0)),
      queue_(tiles_in(options.order)) {
  options_.states->settle();
  const auto take = [&](int64_t bytes) {
    return context.allocate(bytes, Label::staging, Tier::pinned_host);
  };
  for (Buffer& buffer : buffers_) {
    buffer.memory = take(options_.states->largest_tile_bytes());
    if (options_.gradients != nullptr) {
      buffer.gradient = take(options_.gradients->largest_tile_bytes());
    }
  }
  context.compute()->synchronize();  // before the disk touches the memory
}

void SwappedTiles::begin(const StepArguments& args, bool during_backward) {
  update_.begin(args);
  options_.states->settle();
  next_read_ = 0;
  next_update_ = 0;
  ready_.clear();
  start_reads();
  if (!during_backward) order(context_.compute(), host());
}

void SwappedTiles::update(int group) {
  ready_.push_back(group);
  advance();
}

void SwappedTiles::advance() {
  start_reads();
  start_gradient_reads();
  while (next_update_ < queue_.size() && is_there(next_update_)) {
    gradients_.await(tile_at(next_update_).group, host());
    update_next();
  }
}

std::vector<Event> SwappedTiles::finish(int group) {
  size_t end = next_update_;
  for (size_t place = end; place < queue_.size(); ++place) {
    if (tile_at(place).group == group) end = place + 1;
  }
  update_until(end);
  return update_.updated().sent();
}

void SwappedTiles::end() {
  // The compute stream has waited for the gradients.
  order(context_.compute(), host());
  update_until(queue_.size());
  for (Buffer& buffer : buffers_) buffer.transfer.wait();
  update_.updated().finish();
}

void SwappedTiles::settle_gradients() {
  for (Buffer& buffer : buffers_) buffer.gradient_transfer.wait();
}

std::vector<size_t> SwappedTiles::tiles_in(const std::vector<int>& order) const {
  std::vector<size_t> queue;
  const std::vector<Tile>& tiles = options_.states->tiles();
  for (const int group : order) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      if (tiles[i].group == group) queue.push_back(i);
    }
  }
  bug_check(queue.size() == tiles.size(), "a tile of the optimizer has no turn");
  return queue;
}

bool SwappedTiles::is_ready(int group) const {
  return std::find(ready_.begin(), ready_.end(), group) != ready_.end();
}

bool SwappedTiles::is_there(size_t place) {
  const int group = tile_at(place).group;
  const Buffer& buffer = buffer_of(place);
  return place < next_read_ && is_ready(group) && buffer.transfer.query() &&
         gradients_.has_arrived(group) &&
         (options_.gradients == nullptr ||
          (buffer.has_gradient && buffer.gradient_transfer.query()));
}

void SwappedTiles::update_until(size_t end) {
  while (next_update_ < end) {
    start_reads();
    if (next_read_ == next_update_) start_read();
    update_next();
  }
}

void SwappedTiles::update_next() {
  const size_t place = next_update_;
  Buffer& buffer = buffer_of(place);
  take_gradient(place);
  buffer.transfer.wait();
  if (options_.read_ahead) start_reads();
  start_gradient_reads();
  buffer.sent = compute(queue_[place], buffer);
  // The disk writes the buffer after the update.
  host()->synchronize();
  buffer.transfer = options_.states->start_write(queue_[place], buffer.memory);
  ++next_update_;
  if (!options_.write_behind) buffer.transfer.wait();
}

void SwappedTiles::start_reads() {
  const size_t most = options_.read_ahead ? buffers_.size() : 1;
  while (next_read_ < std::min(next_update_ + most, queue_.size()) &&
         buffer_of(next_read_).is_free()) {
    start_read();
  }
}

void SwappedTiles::start_read() {
  const size_t place = next_read_++;
  Buffer& buffer = buffer_of(place);
  buffer.transfer.wait();
  buffer.sent.wait();
  host()->synchronize();
  buffer.transfer = options_.states->start_read(queue_[place], buffer.memory);
  buffer.has_gradient = false;
}

void SwappedTiles::start_gradient_reads() {
  if (options_.gradients == nullptr) return;
  for (size_t place = next_update_; place < next_read_; ++place) {
    const int group = tile_at(place).group;
    if (buffer_of(place).has_gradient || !is_ready(group) || !gradients_.has_arrived(group)) {
      continue;
    }
    start_gradient_read(place);
  }
}

void SwappedTiles::start_gradient_read(size_t place) {
  Buffer& buffer = buffer_of(place);
  buffer.gradient_transfer = options_.gradients->start_read(queue_[place], buffer.gradient);
  buffer.has_gradient = true;
}

void SwappedTiles::take_gradient(size_t place) {
  if (options_.gradients == nullptr) return;
  Buffer& buffer = buffer_of(place);
  if (!buffer.has_gradient) {
    gradients_.await(tile_at(place).group, host());
    start_gradient_read(place);
  }
  buffer.gradient_transfer.wait();
}

Event SwappedTiles::compute(size_t index, const Buffer& buffer) {
  const SwappedShards& states = *options_.states;
  const Tile& tile = states.tiles()[index];
  const auto slice = std::ranges::find_if(slices_, [&](const UpdatedRange& of) {
    return of.group == tile.group && of.segment == tile.segment;
  });
  optim::Update update{.weights = states.plane(tile, buffer.memory, kMasterPlane),
                       .gradient = options_.gradients != nullptr
                                       ? options_.gradients->values(index, buffer.gradient)
                                       : gradients_.gradient(slice->part(tile.range))};
  for (int plane = kFirstStatePlane; plane < states.num_planes(); ++plane) {
    update.states[static_cast<size_t>(plane - kFirstStatePlane)] =
        states.plane(tile, buffer.memory, plane);
  }
  return update_.compute(*slice, tile.range, update);
}

}  // namespace zinc::zero
