// zero/update/swapped_tiles.h: the states of an update that are in swap space, as a pipeline of
// reading ahead, updating, and writing behind, tile by tile.
//
// Note [Buffers of swapped tiles]
// - Tiles wait in a queue, in the order of the update ops of the step program.
// - The i-th tile of the queue uses buffer i mod n. n is 1, plus 1 to read ahead, plus 1 to write
//   behind.
// - States do not wait for gradients: a tile is read as soon as its buffer is free. The buffer is
//   free when the write of the tile before, and the copy of its weights to the model, are over.
// - Master weights that an update only reads (directions) are a tile of their own, with a buffer
//   beside that of the states. They are read with the states.
// - Gradients in swap space have a buffer beside that of the tile's states. They are read once the
//   read of the states has started and the gradients are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/context.h"
#include "optim/optimizer.h"
#include "zero/group/swapped_gradients.h"
#include "zero/group/tile_inputs.h"
#include "zero/group/weight_store.h"
#include "zero/tiers/swapped_shards.h"
#include "zero/update/tile_drivers.h"
#include "zero/update/tile_update.h"

namespace zinc::zero {

struct SwappedTilesOptions {
  SwappedShards* states = nullptr;
  // The tiles of a round of the update; empty: all.
  std::function<bool(const Tile& tile)> is_in_round{};
  SwappedGradients* gradients = nullptr;  // null: they are in host memory
  // The tiles whose update reads gradients; empty: all.
  std::function<bool(const Tile& tile)> reads_gradient{};
  // Tiles without master weights are updated beside those of another tile, which do not change.
  bool reads_master = false;
  bool writes = true;  // false: the tiles of the round do not change
  // Tiles that another round reads before: they are not read ahead of their group's update; empty:
  // none.
  std::function<bool(const Tile& tile)> is_read_before{};
  std::vector<int> order;     // the trained groups, in the order of their updates
  bool read_ahead = false;    // the next tile is read while a tile is updated
  bool write_behind = false;  // a tile is written while the next one is read and updated
};

// Called from the issuing thread only. All calls throw IoError; after that, weights and states must
// not be used. The objects in `options`, and the other arguments, must outlive this.
class SwappedTiles final : public TileDriver {
 public:
  SwappedTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices, Context& context,
               TileUpdate& update, const SwappedTilesOptions& options);

  void begin(const StepArguments& args, bool during_backward) override;
  void update(int group) override;
  // Updates the tiles whose inputs are there, in order.
  void advance() override;
  // Updates the rest up to the end of this group, or all; end() waits until all are written.
  std::vector<Event> finish(int group) override;
  void end() override;
  void abandon() override { update_.updated().finish(); }
  void settle_gradients() override;

 private:
  struct Buffer {
    Block memory;
    Block gradient;             // with gradients in swap space
    Block master;               // with reads_master
    bool has_gradient = false;  // the tile's gradient is here or being read
    Event sent;                 // behind the copy of the updated weights from here
    offload::SwapSpace::Transfer transfer;
    offload::SwapSpace::Transfer gradient_transfer;
    offload::SwapSpace::Transfer master_transfer;
    bool is_free() const { return transfer.query() && master_transfer.query() && sent.query(); }
  };

  std::vector<size_t> tiles_in(const std::vector<int>& order) const;
  std::vector<std::optional<size_t>> find_gradient_tiles() const;
  std::vector<std::optional<size_t>> find_master_tiles() const;
  int64_t largest_bytes() const;
  StreamRef host() const { return update_.stream(); }
  // The buffer of the tile at this place in the queue.
  Buffer& buffer_of(size_t place) { return buffers_[place % buffers_.size()]; }
  const Tile& tile_at(size_t place) const { return options_.states->tiles()[queue_[place]]; }
  bool is_ready(int group) const;
  bool is_there(size_t place);
  // Updates the next tile. Waits for its states and, in swap space, for its gradient.
  void update_next();
  void update_until(size_t end);
  // Starts reads as far as buffers are free.
  void start_reads();
  void start_read();
  // For tiles whose states are read or being read, and whose gradients have arrived.
  void start_gradient_reads();
  void start_gradient_read(size_t place);
  void take_gradient(size_t place);
  Event compute(size_t place, const Buffer& buffer);

  TileInputs& inputs_;
  const std::vector<UpdatedRange>& slices_;
  Context& context_;
  const SwappedTilesOptions options_;
  TileUpdate& update_;
  std::vector<Buffer> buffers_;
  const std::vector<size_t> queue_;  // tiles
  // By place in the queue: the tile of gradients in swap space that the update reads; absent: none.
  const std::vector<std::optional<size_t>> gradient_tiles_;
  // The tile of the master weights beside it; absent: it has them itself, or none are read.
  const std::vector<std::optional<size_t>> master_tiles_;
  size_t next_read_ = 0;  // index into queue_
  size_t next_update_ = 0;
  std::vector<int> ready_;  // groups that are ready in this step
};

}  // namespace zinc::zero
