// train/checkpoint/save_checkpoint.h: an engine's state to a checkpoint, and back.
//
//   zinc::train::save_checkpoint(engine, "out/checkpoints", "", {.client_state = mine});
//   ...
//   zinc::train::load_checkpoint(engine, "out/checkpoints");      // the newest that is whole
//
// DeepSpeed's functions of the same names, but for this: a checkpoint is there whole or not at all,
// its tag is found by looking, every byte is checked, and any world, stage and placement reads it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "files/json/value.h"
#include "train/checkpoint/checkpoint.h"
#include "zero/engine.h"

namespace zinc::train {

struct SaveCheckpointOptions {
  // Any JSON of the client; rank 0's is saved. With the rest of the manifest at most 2 MiB and
  // 40,000 values, or the checkpoint is refused when it has been written (ConfigError):
  // train/checkpoint/format.h.
  files::json::Object client_state{};
  // Files to put beside the states, name and text, such as config.json; rank 0's are saved.
  std::vector<std::pair<std::string, std::string>> texts{};
  bool allow_damaged = false;  // weights with NaN or infinities
  // A folder with the weights that the model's frozen parameters have: the checkpoint names it and
  // their checksums instead of copying them. Empty: they are saved as the others.
  std::string frozen_from{};
};

// A rank's own values at one moment, to be written while the engine trains on: copies, except for
// values that can be held where they are (zero::OwnPiece::lease).
class StateSnapshot {
 public:
  // A value that is held where it is, instead of a copy.
  struct Held {
    zero::Lease lease;
    ConstView values;  // absent: `read` gives them
    std::function<void(View out)> read{};
  };
  struct Part {
    std::string name;
    std::string kind;
    std::optional<TensorSlice> slice{};  // of the parameter, where ranks share it
    std::optional<Shape> shape{};        // where it is not that of the parameter
    zero::Range range{};                 // of the flat parameter, or of the slice
    DType dtype = DType::f32;
    std::byte* copy = nullptr;
    std::vector<Held> held{};  // by piece, for a part without a copy
  };
  // The first call takes the memory for the copies, on the tier pinned_host under the label
  // staging; it is kept, and the next call uses it again. On a meta device nothing is copied. Not
  // collective; between steps.
  std::vector<Part> take(zero::Engine& engine, bool without_frozen = false);
  // Hands out pieces as zero::Engine::read_own() does, and releases each.
  static void read(std::vector<Part> parts, const zero::TakeOwn& take);

 private:
  Block memory_;
};

// Writes checkpoints of an engine into a folder, one at a time. Collective but for is_pending();
// between steps. All ranks need one shared file system. Where a rank fails nothing is left of the
// checkpoint, it throws its error, and the others throw PeerFailed.
class CheckpointSaver {
 public:
  // The buffers through which a state file is written: on the tier pinned_host under the label
  // staging.
  static Block take_buffers(Context& context);

  // Takes the buffers now, so that an unforeseen checkpoint, as on a signal, has them. `engine`
  // must outlive this.
  CheckpointSaver(zero::Engine& engine, std::string folder);
  // Abandons a checkpoint under way.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Begins <folder>/<tag>; an empty tag: checkpoint_name() of the engine's steps. A checkpoint of
  // that name is replaced in one step. With `beside` a thread writes a snapshot while the engine
  // trains on; otherwise everything is written now. NumericsError that names a weight with NaN or
  // infinities. No other checkpoint may be under way. The first one with `frozen_from` reads that
  // folder: ConfigError if a weight differs there.
  void begin(const std::string& tag, SaveCheckpointOptions options, bool beside);
  bool is_pending() const { return pending_ != nullptr; }
  // Commits the checkpoint under way if all ranks have written it, and returns its path; empty: not
  // yet, or there is none.
  std::optional<std::string> poll();
  // The same, but waits. There must be one under way.
  std::string finish();

 private:
  struct Pending;
  void write(Pending& pending, const std::function<void(const zero::TakeOwn&)>& read) const;
  void describe_frozen(const std::string& from);
  std::string commit();

  zero::Engine& engine_;
  const std::string folder_;
  const Block buffers_;
  StateSnapshot snapshot_;
  std::optional<FrozenWeights> frozen_;
  int64_t frozen_values_set_ = 0;  // EngineUsage, when they were compared
  std::unique_ptr<Pending> pending_;
};

// begin() and finish(). Returns the path.
std::string save_checkpoint(zero::Engine& engine, const std::string& folder,
                            const std::string& tag = {}, const SaveCheckpointOptions& options = {});

struct OpenCheckpointOptions {
  std::string tag{};          // empty: the newest that is whole
  std::string frozen_from{};  // Checkpoint::look_for_frozen_in(); empty: where they were
};
// Opens <folder>/<tag> on every rank and has all of it verified, each rank a share. The reasons why
// newer ones were skipped are appended to `notes`, which may be null. Collective. DataError where
// there is none.
Checkpoint open_checkpoint(comm::World& world, const std::string& folder,
                           const OpenCheckpointOptions& options = {},
                           std::vector<std::string>* notes = nullptr);

// Loads a checkpoint into the engine. ConfigError if its seed is not the engine's, since random
// numbers would differ. Collective; between steps.
void load_checkpoint(zero::Engine& engine, const Checkpoint& checkpoint,
                     const zero::ImportOptions& options = {});
// open_checkpoint(), then load it; returns the client's state in it. With `strict`, ConfigError if
// the checkpoint has parameters that the model lacks.
files::json::Object load_checkpoint(zero::Engine& engine, const std::string& folder,
                                    const std::string& tag = {},
                                    const zero::ImportOptions& options = {});

}  // namespace zinc::train
