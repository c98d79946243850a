// files/safetensors/folder.h: writing weights into one file or several, in the Hugging Face layout:
// model.safetensors, or model-00001-of-0000N.safetensors ... and model.safetensors.index.json.
// Reading them: hub/weight_folder.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/safetensors/writer.h"

namespace zinc::files {

// The tensors of each file, as indices into `tensors`. Files are filled in order, up to
// `max_shard_bytes` of data. A tensor is never divided; a larger one gets its own file.
std::vector<std::vector<size_t>> plan_shards(std::span<const TensorSpec> tensors,
                                             int64_t max_shard_bytes);

inline constexpr int64_t kDefaultShardBytes = int64_t{5} * 1000 * 1000 * 1000;

// Writes the files of a model into a folder that exists, as SafetensorsWriter does. The index is
// written last.
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

}  // namespace zinc::files
