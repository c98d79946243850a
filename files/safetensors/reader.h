// files/safetensors/reader.h: reading tensors, or parts of them, from one file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/view.h"
#include "files/input_file.h"
#include "files/safetensors/format.h"

namespace zinc::files {

// Opening reads and checks the header only; data is read by position, so that a rank takes its own
// ranges and nothing else. Safe to share between threads.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  const TensorEntry* find(std::string_view name) const { return header_.find(name); }

  // Elements [begin, begin + out.numel()) of `entry`, flat row-major. out: [n] contiguous host
  // memory; its dtype is the entry's, or both are float dtypes: then values are rounded to nearest
  // even (f64 to 16 bits by way of f32). DataError for an entry whose dtype zinc does not know.
  void read(const TensorEntry& entry, int64_t begin, View out) const;

 private:
  SafetensorsFile(InputFile file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  InputFile file_;
  SafetensorsHeader header_;
};

}  // namespace zinc::files
