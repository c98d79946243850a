#include "zero/group/swapped_gradients.h"

#include <algorithm>

#include "core/error.h"
#include "core/transfer.h"

namespace zinc::zero {
namespace {

constexpr size_t kIncomingBuffers = 2;

// Cut as the tiles of the optimizer: an update then finds states and gradients in tiles of one
// range.
std::vector<Tile> gradient_tiles(const ShardGroups& groups, const comm::Communicator& communicator,
                                 const SwappedGradientsOptions& options) {
  std::vector<Tile> tiles = optimizer_tiles(groups, communicator, {}, options.tile_numel);
  for (Tile& tile : tiles) tile.encoding.dtype = options.dtype;
  return tiles;
}

}  // namespace

SwappedGradients::SwappedGradients(const ShardGroups& groups,
                                   const comm::Communicator& communicator, Context& context,
                                   const SwappedGradientsOptions& options)
    : groups_(groups),
      context_(context),
      slices_(options.slices),
      tiles_(groups, gradient_tiles(groups, communicator, options), {}, Label::gradients, context,
             options.swap),
      incoming_(options.returns ? kIncomingBuffers : 0) {
  for (const int group : options.order) {
    for (const size_t tile : tiles_of(group)) in_order_.push_back(tile);
  }
  bug_check(in_order_.size() == tiles().size(), "a tile of gradients has no turn");
  next_read_ = next_brought_ = in_order_.size();
  const auto take = [&] {
    return context.allocate(largest_tile_bytes(), Label::staging, Tier::pinned_host);
  };
  for (Outgoing& buffer : outgoing_) buffer.memory = take();
  for (Incoming& buffer : incoming_) buffer.memory = take();
  context.compute()->synchronize();  // before the disk touches the memory
}

SwappedGradients::~SwappedGradients() {
  // Copies ran on other streams than the compute stream, which owns the memory.
  const auto let_end = [&](const Event& copy) {
    try {
      context_.compute()->wait(copy);
    } catch (...) {
      // The stream has failed. Its next use reports the error.
    }
  };
  for (const Outgoing& buffer : outgoing_) let_end(buffer.filled);
  for (const Incoming& buffer : incoming_) let_end(buffer.left);
}

std::vector<size_t> SwappedGradients::tiles_of(int group) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < tiles().size(); ++i) {
    if (tiles()[i].group == group) found.push_back(i);
  }
  return found;
}

Event SwappedGradients::send(int group, const OnDevice& sums, Turn turn) {
  for (const OwnedRange& slice : slices_) {
    if (!turn.is_last || !on_sums_ || slice.group != group) continue;
    on_sums_(slice, sums(slice.segment, slice.range), context_.stream(StreamRole::reduce));
  }
  const StreamRef stream = context_.stream(StreamRole::copy_out);
  stream->wait(context_.compute()->record());
  stream->wait(context_.stream(StreamRole::reduce)->record());
  for (const size_t tile : tiles_of(group)) {
    Outgoing& buffer = outgoing_[next_outgoing_++ % outgoing_.size()];
    land(buffer);
    if (Outgoing* const held = holder_of(tile)) land(*held);  // from an abandoned pass
    transfer(sums(tiles()[tile].segment, tiles()[tile].range), values(tile, buffer.memory), stream);
    buffer.filled = stream->record();
    buffer.tile = tile;
    advance();
  }
  return stream->record();
}

void SwappedGradients::begin(bool first) {
  // Reads of a pass that was abandoned.
  while (next_brought_ < next_read_) {
    incoming_[next_brought_++ % incoming_.size()].transfer.wait();
  }
  next_read_ = next_brought_ = first || incoming_.empty() ? in_order_.size() : 0;
  start_reads(false);
}

Event SwappedGradients::bring(int group, const OnDevice& sums) {
  const StreamRef stream = context_.stream(StreamRole::copy_in);
  // The target's memory may still be in use by work on the compute stream.
  stream->wait(context_.compute()->record());
  for (const size_t tile : tiles_of(group)) {
    bug_check(next_brought_ < in_order_.size() && in_order_[next_brought_] == tile,
              "gradients come back in another order than that of reductions");
    if (next_read_ == next_brought_) start_reads(true);
    Incoming& buffer = incoming_[next_brought_ % incoming_.size()];
    buffer.transfer.wait();
    transfer(values(tile, buffer.memory), sums(tiles()[tile].segment, tiles()[tile].range), stream);
    buffer.left = stream->record();
    ++next_brought_;
    start_reads(false);
  }
  return stream->record();
}

void SwappedGradients::start_reads(bool one) {
  const auto has_room = [this] {
    return next_read_ < std::min(next_brought_ + incoming_.size(), in_order_.size());
  };
  for (; has_room(); ++next_read_) {
    Incoming& buffer = incoming_[next_read_ % incoming_.size()];
    Outgoing* const holder = holder_of(in_order_[next_read_]);
    const bool is_there = holder == nullptr || (holder->is_written && holder->transfer.query());
    if (!one && !(is_there && buffer.left.query())) return;
    if (holder != nullptr) land(*holder);
    buffer.left.wait();
    buffer.transfer = tiles_.start_read(in_order_[next_read_], buffer.memory);
    one = false;
  }
}

void SwappedGradients::advance() {
  for (size_t i = 0; i < outgoing_.size(); ++i) {  // the oldest first
    Outgoing& buffer = outgoing_[(next_outgoing_ + i) % outgoing_.size()];
    if (!buffer.tile) continue;
    if (!buffer.is_written && buffer.filled.query()) start_write(buffer);
    if (buffer.is_written && buffer.transfer.query()) land(buffer);
  }
  start_reads(false);
}

bool SwappedGradients::has_arrived(int group) {
  advance();
  return std::none_of(outgoing_.begin(), outgoing_.end(), [&](const Outgoing& buffer) {
    return buffer.tile && tiles()[*buffer.tile].group == group;
  });
}

void SwappedGradients::await(int group, StreamRef) {
  for (Outgoing& buffer : outgoing_) {
    if (buffer.tile && tiles()[*buffer.tile].group == group) land(buffer);
  }
}

void SwappedGradients::await_all() {
  for (Outgoing& buffer : outgoing_) {
    if (buffer.tile && !buffer.is_written) start_write(buffer);
  }
  for (Outgoing& buffer : outgoing_) land(buffer);
}

SwappedGradients::Outgoing* SwappedGradients::holder_of(size_t tile) {
  const auto found = std::find_if(outgoing_.begin(), outgoing_.end(),
                                  [&](const Outgoing& buffer) { return buffer.tile == tile; });
  return found == outgoing_.end() ? nullptr : &*found;
}

void SwappedGradients::start_write(Outgoing& buffer) {
  buffer.filled.wait();
  buffer.transfer = tiles_.start_write(*buffer.tile, buffer.memory);
  buffer.is_written = true;
}

void SwappedGradients::land(Outgoing& buffer) {
  if (!buffer.tile) return;
  if (!buffer.is_written) start_write(buffer);
  try {
    buffer.transfer.wait();
  } catch (...) {
    if (buffer.transfer.is_over()) {
      buffer.tile.reset();
      buffer.is_written = false;
    }
    throw;
  }
  buffer.tile.reset();
  buffer.is_written = false;
}

}  // namespace zinc::zero
