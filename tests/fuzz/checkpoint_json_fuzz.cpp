// Fuzz target: bytes as the manifest of a checkpoint, and as the index of a state file. Accepted
// bytes name only plain files, and survive being written and read again.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "core/crc32c.h"
#include "core/error.h"
#include "train/checkpoint/format.h"

namespace {

using zinc::train::Manifest;
using zinc::train::StateIndex;
using zinc::train::StoredPart;

void check(bool condition) {
  if (!condition) std::abort();
}

bool is_plain(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
}

void check_manifest(const std::string& text) {
  const Manifest manifest = zinc::train::parse_manifest(text, "input");
  for (const auto& file : manifest.files) check(is_plain(file.name) && file.bytes >= 0);
  check(static_cast<int64_t>(manifest.indices.size()) == manifest.world);
  const std::string again = to_json(manifest);
  check(to_json(zinc::train::parse_manifest(again, "again")) == again);
}

void check_index(const std::string& text) {
  const StateIndex index = zinc::train::parse_state_index(text, "input");
  check(is_plain(index.file));
  for (const StoredPart& part : index.parts) {
    check(part.begin >= 0 && part.count > 0 && part.begin + part.count <= part.shape.numel());
  }
  const std::string again = to_json(index);
  check(to_json(zinc::train::parse_state_index(again, "again")) == again);
}

template <class Check>
void try_as(const Check& check_it, const std::string& text) {
  try {
    check_it(text);
  } catch (const zinc::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_as(check_index, text);
  try_as(check_manifest, text);
  // The checksum is right here, so that the rest is read.
  constexpr char kDigits[] = "0123456789abcdef";
  const uint32_t crc = zinc::crc32c(std::as_bytes(std::span(text)));
  std::string hex;
  for (int shift = 28; shift >= 0; shift -= 4) hex += kDigits[(crc >> shift) & 15];
  try_as(check_manifest, "{\"crc32c\":\"" + hex + "\"," + text);
  return 0;
}
