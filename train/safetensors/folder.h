// train/safetensors/folder.h: weights in one file or in several, in the Hugging Face layout:
// model.safetensors, or model-00001-of-0000N.safetensors ... and model.safetensors.index.json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/safetensors/reader.h"
#include "train/safetensors/writer.h"

namespace zinc::train {

class SafetensorsFolder {
 public:
  // A folder with model.safetensors, with an index, or with exactly one *.safetensors file; or such
  // a file itself. All headers are read. DataError where there is none, where the index names a
  // file that does not exist, lies elsewhere (anything but a plain file name) or lacks a tensor
  // that the index puts there. Tensors that the index does not list are not seen.
  static SafetensorsFolder open(const std::string& path);

  struct Location {
    const SafetensorsFile* file;
    const TensorEntry* entry;
    void read(int64_t begin, View out) const { file->read(*entry, begin, out); }
  };
  // Sorted by name.
  const std::map<std::string, Location, std::less<>>& tensors() const { return tensors_; }
  const Location* find(std::string_view name) const;  // null when absent
  const std::string& path() const { return path_; }

 private:
  void add_file(const std::string& path);
  void read_index(const std::string& folder, const std::string& index_path);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Location, std::less<>> tensors_;
};

// Which tensors go into which file, by index into `tensors`: in order, each file filled up to
// `max_shard_bytes` of data, a tensor never divided (a larger one gets a file of its own).
std::vector<std::vector<size_t>> plan_shards(std::span<const TensorSpec> tensors,
                                             int64_t max_shard_bytes);

inline constexpr int64_t kDefaultShardBytes = int64_t{5} * 1000 * 1000 * 1000;

// Writes the files of a model into a folder that exists. As SafetensorsWriter; the index comes
// last.
class SafetensorsFolderWriter {
 public:
  SafetensorsFolderWriter(std::string folder, std::span<const TensorSpec> tensors,
                          int64_t max_shard_bytes = kDefaultShardBytes,
                          WriterRole role = WriterRole::alone);

  void write(std::string_view name, int64_t begin, ConstView values);
  int64_t num_written() const;                                    // elements, by this process
  int64_t total_parameters() const { return total_parameters_; }  // elements
  void commit();  // a joiner leaves the index to the creator

 private:
  std::string folder_;
  WriterRole role_;
  std::vector<SafetensorsWriter> files_;
  std::map<std::string, size_t, std::less<>> file_of_;
  int64_t total_bytes_ = 0;
  int64_t total_parameters_ = 0;
};

}  // namespace zinc::train
