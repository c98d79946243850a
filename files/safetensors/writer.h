// files/safetensors/writer.h: writing one safetensors file, range by range.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/view.h"
#include "files/atomic_file.h"
#include "files/safetensors/format.h"

namespace zinc::files {

// The part of a process in writing a file.
enum class WriterRole : uint8_t {
  alone,    // one process, all of it
  creator,  // one of several: creates the files in a folder that nobody reads yet (AtomicFolder)
  joiner,   // one of several: opens what the creator has made
};

// All tensors are declared first; then their elements arrive in any order, each exactly once. The
// space is claimed at the start, the file appears at commit(), complete and durable; see
// files/atomic_file.h. Without a commit nothing is left.
//
// Several processes each write different elements, and commit() syncs them. The processes must
// check that together they wrote everything (num_written()).
class SafetensorsWriter {
 public:
  // Metadata "format": "pt" is required by Hugging Face's loaders.
  SafetensorsWriter(std::string path, std::span<const TensorSpec> tensors,
                    const SafetensorsMetadata& metadata = {{"format", "pt"}},
                    WriterRole role = WriterRole::alone);

  const std::string& path() const { return file_.path(); }
  bool has(std::string_view name) const { return index_.contains(name); }
  // Elements [begin, begin + values.numel()) of `name`, flat row-major. values: contiguous host
  // memory of the declared dtype, or of a float dtype that is converted to it. InvalidArgument for
  // an unknown name, a range outside the tensor or one that was written before.
  void write(std::string_view name, int64_t begin, ConstView values);
  int64_t num_written() const { return num_written_; }  // elements, by this process
  // InvalidArgument where a process that is alone left elements out.
  void commit();

 private:
  struct Progress {
    const TensorEntry* entry;
    std::map<int64_t, int64_t> written;  // begin -> end, in elements; disjoint, not adjacent
  };
  void require_everything() const;
  static void mark(Progress& progress, int64_t begin, int64_t end);

  WriterRole role_;
  int64_t num_written_ = 0;
  SafetensorsLayout layout_;
  std::map<std::string, Progress, std::less<>> index_;
  AtomicFile file_;
};

}  // namespace zinc::files
