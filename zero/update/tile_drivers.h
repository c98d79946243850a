// zero/update/tile_drivers.h: takes the slices of a rank that are in one place through an update,
// group by group and tile by tile.
//
// Note [Tiles of an update]
// The update of an element depends on that element alone. So slices are cut into tiles, and tiles
// travel between tiers, without changing a bit.
//
//   driver         master weights, states   updated by   a tile
//   DeviceTiles    on the device            the device   is a whole slice, but where the model's
//                                                        copy is elsewhere
//   DevicePart     the same, beside others  the device   the same; all slices at once, in the step:
//                                                        Note [Split states]
//   HostTiles      in host memory           the CPU      is updated in place, on a GPU beside the
//                                                        device's work
//   StreamedTiles  in host memory           the device   travels to one of two buffers there, and
//                                                        back
//   SwappedTiles   in swap space            the CPU      is read to host memory, and written:
//                                                        swapped_tiles.h
//
// New weights travel from where they were computed to the model's copy.
//
// An update of matrices has two rounds of tiles: one makes directions from gradients and states,
// the other changes weights by the steps that came of them (whole_phase.h). A slice has the views
// that its round reads and changes, and no others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/context.h"
#include "core/view.h"
#include "optim/optimizer.h"
#include "zero/group/tile_inputs.h"
#include "zero/group/weight_store.h"
#include "zero/update/tile_update.h"

namespace zinc::zero {

// Called from the issuing thread only. All calls may throw IoError.
class TileDriver {
 public:
  virtual ~TileDriver() = default;

  // An update begins. `during_backward`: a group's gradients are there once its last reduction was
  // issued, ahead of update(). Otherwise the compute stream has waited for all gradients.
  virtual void begin(const StepArguments& args, bool during_backward) = 0;
  // Issues the update of the group, or lets advance() do so once its inputs are there. Never waits.
  virtual void update(int group) = 0;
  // Issues the updates that can be issued without waiting.
  virtual void advance() = 0;
  // Issues what is left of the group. Waits for its inputs. Returns events: once all have happened,
  // the group's new weights have arrived.
  virtual std::vector<Event> finish(int group) = 0;
  // Issues what is left of all groups. The compute stream waits for it.
  virtual void end() = 0;
  // The compute stream waits for all that was computed, also for what an error left.
  virtual void abandon() {}
  // Waits for the gradients that are read ahead, so that other code can read gradients.
  virtual void settle_gradients() {}
};

struct TileOptions {
  std::vector<int> order;  // all groups, in the order in which a forward pass first uses them
  int64_t tile_numel = 1;  // elements per tile; a multiple of kNormChunk
};

// Slices whose master weights and states are in memory.
class SliceTiles : public TileDriver {
 public:
  // Updates those of `slices` that are in `tier`. A slice without weights, or without states, is
  // updated without. All references must outlive this.
  SliceTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices, Tier tier,
             TileUpdate& update, TileOptions options);
  void begin(const StepArguments& args, bool during_backward) override;
  void update(int group) override { update_group(group); }
  void advance() override {}
  std::vector<Event> finish(int group) override;
  void end() override;

 protected:
  TileInputs& inputs() const { return inputs_; }
  TileUpdate& tile_update() const { return update_; }
  const TileOptions& options() const { return options_; }
  void update_group(int group);
  void update_all();
  // `in_memory`: the tile's weights, states and gradient, where they are.
  virtual void update_tile(const UpdatedRange& slice, Range tile, const optim::Update& in_memory);

 private:
  struct Slice {
    const UpdatedRange* of;
    bool is_updated = false;
  };

  void update_slice(Slice& slice);

  TileInputs& inputs_;
  TileUpdate& update_;
  const TileOptions options_;
  std::vector<Slice> slices_;
};

class DeviceTiles final : public SliceTiles {
 public:
  DeviceTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices, TileUpdate& update,
              TileOptions options);
};

// The slices on the device, beside others that are not. For a round whose inputs are all there
// when it begins.
class DevicePart final : public SliceTiles {
 public:
  DevicePart(TileInputs& inputs, const std::vector<UpdatedRange>& slices, TileUpdate& update,
             TileOptions options);
  void begin(const StepArguments& args, bool during_backward) override;
  void update(int) override {}
  std::vector<Event> finish(int group) override;
  void end() override;

 private:
  bool is_left_ = false;
};

class HostTiles final : public SliceTiles {
 public:
  HostTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices, Context& context,
            TileUpdate& update, TileOptions options);
  void begin(const StepArguments& args, bool during_backward) override;
  void update(int group) override;
  void advance() override;
  std::vector<Event> finish(int group) override;
  void end() override;
  void abandon() override { tile_update().updated().finish(); }

 private:
  Context& context_;
  const bool never_waits_;  // the issuing thread never waits for an update
  std::deque<int> ready_;   // groups
};

// While a tile is updated, the next one comes in and the one before leaves.
class StreamedTiles final : public SliceTiles {
 public:
  StreamedTiles(TileInputs& inputs, const std::vector<UpdatedRange>& slices, Context& context,
                TileUpdate& update, TileOptions options);
  void begin(const StepArguments& args, bool during_backward) override;

 protected:
  void update_tile(const UpdatedRange& slice, Range tile, const optim::Update& in_memory) override;

 private:
  // Room on the device for a tile of states from host memory.
  struct Room {
    Block memory;
    Event left;  // behind the copy of the updated tile back to host memory
  };

  Context& context_;
  std::array<Room, 2> rooms_;
  size_t next_room_ = 0;
};

}  // namespace zinc::zero
