#include "zero/update/swapped_tiles.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace zinc::zero {

SwappedTiles::SwappedTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices,
                           Context& context, TileUpdate& update, const SwappedTilesOptions& options)
    : inputs_(inputs),
      slices_(slices),
      context_(context),
      options_(options),
      update_(update),
      buffers_(1 + (options.read_ahead ? 1 : 0) + (options.write_behind ? 1 : 0)),
      queue_(tiles_in(options.order)),
      gradient_tiles_(find_gradient_tiles()),
      master_tiles_(find_master_tiles()) {
  options_.states->settle();
  const auto take = [&](int64_t bytes) {
    return context.allocate(bytes, Label::staging, Tier::pinned_host);
  };
  int64_t master_bytes = 0;
  for (const auto& tile : master_tiles_) {
    if (!tile) continue;
    master_bytes =
        std::max(master_bytes, options_.states->bytes_of(options_.states->tiles()[*tile]));
  }
  for (Buffer& buffer : buffers_) {
    buffer.memory = take(largest_bytes());
    if (master_bytes > 0) buffer.master = take(master_bytes);
    if (std::ranges::any_of(gradient_tiles_, [](const auto& tile) { return tile.has_value(); })) {
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
    inputs_.await(tile_at(next_update_).group, host());
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
  const auto is_in_round = [&](const Tile& tile) {
    return !options_.is_in_round || options_.is_in_round(tile);
  };
  for (const int group : order) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      if (tiles[i].group == group && is_in_round(tiles[i])) queue.push_back(i);
    }
  }
  bug_check(static_cast<std::ptrdiff_t>(queue.size()) == std::ranges::count_if(tiles, is_in_round),
            "a tile of the optimizer has no turn");
  return queue;
}

std::vector<std::optional<size_t>> SwappedTiles::find_gradient_tiles() const {
  std::vector<std::optional<size_t>> found(queue_.size());
  for (size_t place = 0; place < queue_.size() && options_.gradients != nullptr; ++place) {
    const Tile& tile = tile_at(place);
    if (options_.reads_gradient && !options_.reads_gradient(tile)) continue;
    const std::vector<Tile>& tiles = options_.gradients->tiles();
    const auto same = std::ranges::find_if(tiles, [&](const Tile& other) {
      return other.group == tile.group && other.range == tile.range;
    });
    bug_check(same != tiles.end(), "a tile of the optimizer has no gradients");
    found[place] = static_cast<size_t>(same - tiles.begin());
  }
  return found;
}

std::vector<std::optional<size_t>> SwappedTiles::find_master_tiles() const {
  std::vector<std::optional<size_t>> found(queue_.size());
  for (size_t place = 0; place < queue_.size() && options_.reads_master; ++place) {
    const Tile& tile = tile_at(place);
    if (tile.planes.has(kMasterPlane)) continue;
    const std::vector<Tile>& tiles = options_.states->tiles();
    const auto same = std::ranges::find_if(tiles, [&](const Tile& other) {
      return other.planes.has(kMasterPlane) && other.group == tile.group &&
             other.range == tile.range;
    });
    bug_check(same != tiles.end(), "a tile of states has no master weights");
    found[place] = static_cast<size_t>(same - tiles.begin());
  }
  return found;
}

int64_t SwappedTiles::largest_bytes() const {
  int64_t largest = 0;
  for (const size_t tile : queue_) {
    largest = std::max(largest, options_.states->bytes_of(options_.states->tiles()[tile]));
  }
  return largest;
}

bool SwappedTiles::is_ready(int group) const {
  return std::find(ready_.begin(), ready_.end(), group) != ready_.end();
}

bool SwappedTiles::is_there(size_t place) {
  const int group = tile_at(place).group;
  const Buffer& buffer = buffer_of(place);
  return place < next_read_ && is_ready(group) && buffer.transfer.query() &&
         buffer.master_transfer.query() && inputs_.has_arrived(group) &&
         (!gradient_tiles_[place] || (buffer.has_gradient && buffer.gradient_transfer.query()));
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
  buffer.master_transfer.wait();
  if (options_.read_ahead) start_reads();
  start_gradient_reads();
  buffer.sent = compute(place, buffer);
  ++next_update_;
  // The disk writes the buffer after the update, or reads the next tile to it.
  host()->synchronize();
  if (!options_.writes) return;
  buffer.transfer = options_.states->start_write(queue_[place], buffer.memory);
  if (!options_.write_behind) buffer.transfer.wait();
}

void SwappedTiles::start_reads() {
  const size_t most = options_.read_ahead ? buffers_.size() : 1;
  const auto may_read = [&](const Tile& tile) {
    return !options_.is_read_before || !options_.is_read_before(tile) || is_ready(tile.group);
  };
  while (next_read_ < std::min(next_update_ + most, queue_.size()) &&
         may_read(tile_at(next_read_)) && buffer_of(next_read_).is_free()) {
    start_read();
  }
}

void SwappedTiles::start_read() {
  const size_t place = next_read_++;
  Buffer& buffer = buffer_of(place);
  buffer.transfer.wait();
  buffer.master_transfer.wait();
  buffer.sent.wait();
  host()->synchronize();
  buffer.transfer = options_.states->start_read(queue_[place], buffer.memory);
  if (const auto tile = master_tiles_[place]) {
    buffer.master_transfer = options_.states->start_read(*tile, buffer.master);
  }
  buffer.has_gradient = false;
}

void SwappedTiles::start_gradient_reads() {
  if (options_.gradients == nullptr) return;
  for (size_t place = next_update_; place < next_read_; ++place) {
    const int group = tile_at(place).group;
    if (!gradient_tiles_[place] || buffer_of(place).has_gradient || !is_ready(group) ||
        !inputs_.has_arrived(group)) {
      continue;
    }
    start_gradient_read(place);
  }
}

void SwappedTiles::start_gradient_read(size_t place) {
  Buffer& buffer = buffer_of(place);
  buffer.gradient_transfer =
      options_.gradients->start_read(*gradient_tiles_[place], buffer.gradient);
  buffer.has_gradient = true;
}

void SwappedTiles::take_gradient(size_t place) {
  if (!gradient_tiles_[place]) return;
  Buffer& buffer = buffer_of(place);
  if (!buffer.has_gradient) {
    inputs_.await(tile_at(place).group, host());
    start_gradient_read(place);
  }
  buffer.gradient_transfer.wait();
}

Event SwappedTiles::compute(size_t place, const Buffer& buffer) {
  const SwappedShards& states = *options_.states;
  const Tile& tile = tile_at(place);
  const auto slice = std::ranges::find_if(slices_, [&](const UpdatedRange& of) {
    return of.group == tile.group && of.segment == tile.segment;
  });
  const std::optional<size_t> gradient = gradient_tiles_[place];
  optim::Update update{.weights = states.plane(tile, buffer.memory, kMasterPlane),
                       .gradient = gradient ? options_.gradients->values(*gradient, buffer.gradient)
                                            : inputs_.gradient(slice->part(tile.range))};
  if (const auto master = master_tiles_[place]) {
    update.weights = states.plane(states.tiles()[*master], buffer.master, kMasterPlane);
  }
  const int first = std::max(tile.planes.begin, kFirstStatePlane);
  for (int plane = first; plane < tile.planes.end; ++plane) {
    update.states[static_cast<size_t>(plane - first)] = states.plane(tile, buffer.memory, plane);
  }
  return update_.compute(*slice, tile.range, update);
}

}  // namespace zinc::zero
