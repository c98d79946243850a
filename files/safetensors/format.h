// files/safetensors/format.h: the safetensors file format, as huggingface/safetensors defines it:
//
//   u64 little-endian N | N bytes of JSON, which may end in spaces | tensor data to the end
//   {"__metadata__": {string: string}, "<name>": {"dtype": "F32", "shape": [2, 3],
//    "data_offsets": [begin, end]}, ...}            offsets count from the start of the data
//
// The reader trusts nothing: every number is checked before it is used, and the data must be
// covered by the tensors without a hole or an overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace zinc::files {

inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;  // bytes; the format's own limit

using SafetensorsMetadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  std::string_view type;       // as spelt in the file: "BF16"
  std::optional<DType> dtype;  // absent for a type that zinc does not compute with
  Shape shape;
  int64_t begin = 0;  // byte range in the file
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their data
  SafetensorsMetadata metadata;
  int64_t data_begin = 0;  // bytes from the start of the file

  const TensorEntry* find(std::string_view name) const;  // null when absent

 private:
  friend SafetensorsHeader parse_safetensors_header(std::string text, int64_t file_bytes,
                                                    const std::string& file);
  std::vector<uint32_t> by_name_;
};

// Checks the first eight bytes of a file of `file_bytes` and returns N. DataError.
int64_t safetensors_header_length(std::span<const std::byte> first_bytes, int64_t file_bytes,
                                  const std::string& file);

// Reads the JSON text (N bytes) of a file of `file_bytes`. `file` stands in messages. DataError
// with the tensor and what is wrong with it: JSON that is malformed, not UTF-8 or has duplicate
// keys; unknown keys or dtypes; names that are empty, longer than 512 bytes or hold control
// characters; more than kMaxRank dimensions; sizes that overflow or contradict the offsets; ranges
// that overlap, leave a hole or end elsewhere than the file.
SafetensorsHeader parse_safetensors_header(std::string text, int64_t file_bytes,
                                           const std::string& file);

struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

// The layout of a file with these tensors: its first bytes (length and header) and the place of
// each tensor. As in the reference writer, the data is ordered by dtype, widest first, then by
// name, and starts at a multiple of 8. InvalidArgument for duplicate or empty names.
struct SafetensorsLayout {
  std::string prefix;
  std::vector<TensorEntry> tensors;  // in the order of their data
  int64_t file_bytes = 0;
};
SafetensorsLayout safetensors_layout(std::span<const TensorSpec> tensors,
                                     const SafetensorsMetadata& metadata);

}  // namespace zinc::files
