// Fuzz target: bytes as a safetensors file. Accepted tensors lie within the file, cover its data
// without a hole, and survive being written and read again.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/safetensors/format.h"

namespace {

using zinc::files::SafetensorsHeader;
using zinc::files::TensorEntry;

SafetensorsHeader parse(const std::string& file) {
  const auto size = static_cast<int64_t>(file.size());
  const int64_t length =
      zinc::files::safetensors_header_length(std::as_bytes(std::span(file)), size, "input");
  return zinc::files::parse_safetensors_header(file.substr(8, static_cast<size_t>(length)), size,
                                               "input");
}

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  SafetensorsHeader header;
  try {
    header = parse(file);
  } catch (const zinc::DataError&) {
    return 0;
  }
  int64_t end = header.data_begin;
  std::vector<zinc::files::TensorSpec> specs;
  for (const TensorEntry& entry : header.tensors) {
    check(entry.begin == end && entry.end >= entry.begin);
    check(header.find(entry.name) == &entry);
    end = entry.end;
    if (entry.dtype) specs.push_back({entry.name, *entry.dtype, entry.shape});
  }
  check(end == static_cast<int64_t>(size));

  const auto layout = zinc::files::safetensors_layout(specs, header.metadata);
  const SafetensorsHeader again =
      zinc::files::parse_safetensors_header(layout.prefix.substr(8), layout.file_bytes, "again");
  check(again.metadata == header.metadata && again.tensors.size() == specs.size());
  for (const auto& spec : specs) {
    const TensorEntry* entry = again.find(spec.name);
    check(entry != nullptr && entry->dtype == spec.dtype && entry->shape == spec.shape);
  }
  return 0;
}
