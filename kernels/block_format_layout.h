// kernels/block_format_layout.h: where the parts of a chunk lie: Note [Chunks].
#pragma once

#include <cstdint>

namespace zinc::kernels {

// Bytes from the start of a chunk.
inline constexpr int64_t kNf4AbsmaxAt = 512, kNf4NestedAt = 528, kNf4OffsetAt = 532;
inline constexpr int64_t kNf4ChunkBytes = 536;
inline constexpr int64_t kInt8AbsmaxAt = 1024;
inline constexpr int64_t kInt8ChunkBytes = 1040;

}  // namespace zinc::kernels
