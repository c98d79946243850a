// train/checkpoint/checkpoint.h: reads a checkpoint, in any world.
//
// Bytes are compared with their checksum before they are used: a bit that has flipped anywhere in
// the folder is a DataError with file, parameter and elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/input_file.h"
#include "hub/weight_reader.h"
#include "train/checkpoint/format.h"
#include "zero/update/training_state.h"

namespace zinc::train {

class Checkpoint : public zero::StateSource {
 public:
  // Reads the manifest and the indices; opens the state files. DataError where anything is missing,
  // damaged, of another checkpoint or of a newer zinc, or where parts overlap or leave a hole.
  static Checkpoint open(const std::string& folder);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t bytes() const;  // of all files but the manifest
  // Sets another folder in which to look for frozen weights that the checkpoint does not hold.
  void look_for_frozen_in(const std::string& folder);

  // Reads everything: files number `part`, part + parts, ... of the folder. `read`, which may be
  // empty, is called with bytes as they are done.
  void verify(int part = 0, int parts = 1, const std::function<void(int64_t)>& read = {}) const;
  // The same for frozen weights in another folder. ConfigError if they are missing or differ: the
  // checkpoint itself is not damaged.
  void verify_frozen(int part = 0, int parts = 1) const;

  // Compares the checksums of all files beside the states. DataError.
  void verify_texts() const;
  // The text of a file beside the states: "config.json"; absent where there is none. DataError
  // where it is damaged.
  std::optional<std::string> text_of(std::string_view file) const;

  // Parameters in the order of their names, with the kinds that they have.
  struct Tensor {
    Shape shape;
    std::vector<std::string> kinds;
  };
  std::map<std::string, Tensor> tensors() const;

  const zero::TrainingState& state() const override { return manifest_.state; }
  std::optional<Shape> shape_of(std::string_view name, std::string_view kind) const override;
  void read(std::string_view name, std::string_view kind, int64_t begin, View out) const override;

 private:
  struct StateFile {
    files::InputFile file;
    StateIndex index;
  };
  struct Part {
    size_t file;
    const StoredPart* stored;
    int64_t offset;  // of the part's data in the file
  };
  // The parts of one kind of values of a parameter, or of one slice of it, in the order of their
  // elements. Together they are complete and do not overlap.
  using Parts = std::vector<Part>;
  struct Whole {
    Shape shape;
    // All slices, in order; empty if no ranks shared the parameter.
    std::vector<TensorSlice> slices;
    std::vector<Parts> parts;  // by slice; one entry if there are none
  };
  using Key = std::pair<std::string, std::string>;  // name, kind

  explicit Checkpoint(std::string path) : path_(std::move(path)) {}
  static Parts& parts_of(const StoredPart& part, Whole& whole);
  void open_state_file(const StoredFile& index);
  std::string read_file(const StoredFile& stored, int64_t limit_bytes) const;
  void add_parts();
  void require_whole() const;
  void require_all(const Key& key, const Parts& parts, int64_t numel) const;
  void read_parts(const Parts& parts, int64_t begin, const View& out) const;
  // The values of a block, checked, in the block's own memory until the next call.
  ConstView block(const Part& part, size_t number) const;
  const Whole* find(std::string_view name, std::string_view kind) const;
  // Null where the values of that kind are not elsewhere.
  const FrozenWeights::Parameter* find_frozen(std::string_view name, std::string_view kind) const;
  const hub::WeightReader& frozen_weights() const;
  void read_frozen(const FrozenWeights::Parameter& parameter, int64_t begin, View out) const;

  std::string path_;
  Manifest manifest_;
  std::vector<StateFile> files_;
  std::map<Key, Whole> wholes_;
  mutable std::optional<hub::WeightReader> frozen_;  // made at first use

  // Neighbouring reads share a block.
  struct Cached {
    size_t file = 0;
    int64_t offset = -1;
    std::vector<std::byte> bytes;
  };
  mutable Cached cached_;
};

// FrozenWeights::Parameter::crc. Reads all of it.
uint32_t crc_of_weight(const hub::WeightReader& weights, const std::string& name,
                       const Shape& shape, DType dtype);

}  // namespace zinc::train
