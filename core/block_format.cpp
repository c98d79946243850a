#include "core/block_format.h"

namespace zinc {

std::string_view name_of(BlockFormat format) {
  switch (format) {
    case BlockFormat::nf4:
      return "nf4";
    case BlockFormat::int8:
      return "int8";
    case BlockFormat::signed8:
      return "signed8";
    case BlockFormat::unsigned8:
      return "unsigned8";
  }
  return "?";
}

std::optional<BlockFormat> block_format_named(std::string_view name) {
  for (const BlockFormat format : {BlockFormat::nf4, BlockFormat::int8}) {
    if (name == name_of(format)) return format;
  }
  return std::nullopt;
}

int64_t block_numel(BlockFormat format) { return format == BlockFormat::nf4 ? 64 : 256; }
int64_t chunk_bytes(BlockFormat format) {
  return format == BlockFormat::nf4 ? kNf4ChunkBytes : kInt8ChunkBytes;
}
int64_t encoded_bytes(BlockFormat format, int64_t n) {
  return (n + kFormatChunk - 1) / kFormatChunk * chunk_bytes(format);
}

}  // namespace zinc
