// train/checkpoint/state_file.h: one rank's values as a file of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "files/atomic_file.h"
#include "train/checkpoint/format.h"
#include "zero/values/own_values.h"

namespace zinc::train {

// The name and shape of a parameter.
struct NamedShape {
  std::string name;
  Shape shape;
};

// Writes <folder>/<name>.safetensors in the order in which pieces come, then its index
// <name>.json. Each is on the disk, synced, when finish() returns. IoError.
class StateFileWriter {
 public:
  // `kinds`: the kinds of values that parts may have. Room for the header is reserved for all
  // kinds, in advance. `memory`: as AtomicFile::create_shared().
  StateFileWriter(std::string folder, std::string name, std::span<const NamedShape> parameters,
                  std::span<const std::string> kinds, DType dtype,
                  std::span<std::byte> memory = {});

  // Writes a piece as zero::Engine::read_own() hands it out.
  void write(const zero::OwnPiece& piece);
  // Writes the index, and returns it.
  StoredFile finish();

  int64_t num_written() const { return num_written_; }  // elements

 private:
  struct Part {
    StoredPart stored;
    int64_t offset = 0;   // of the part's data in the file
    int64_t written = 0;  // elements
  };
  Part& part_of(const zero::OwnPiece& piece);
  std::string header() const;

  std::string folder_, name_;
  const DType dtype_;
  std::map<std::string, Shape, std::less<>> shapes_;
  int64_t header_bytes_ = 0;
  int64_t end_ = 0;  // end of the data so far, from the start of the file
  int64_t num_written_ = 0;
  std::vector<Part> parts_;
  std::map<std::pair<std::string, std::string>, size_t> index_;  // by name and kind
  files::AtomicFile file_;
};

// Writes a small file into a folder that nobody reads yet, synced.
StoredFile write_stored_file(const std::string& folder, const std::string& name,
                             std::string_view content);

}  // namespace zinc::train
