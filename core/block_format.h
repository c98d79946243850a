// core/block_format.h: weights in 4 or 8 bits, in blocks that share a scale, as bitsandbytes
// defines them.
//
// A block's values are divided by its largest magnitude (absmax), and each becomes the index of the
// nearest value in a code of 16 or 256 values in [-1, 1]: the number of midpoints between
// neighbouring code values that lie below the quotient. All arithmetic is in f32.
//
//   nf4   T. Dettmers et al., QLoRA, 2023, Appendix E: 16 values, blocks of 64. Double
//         quantization: absmax minus their mean over the whole weight (`offset`) are in 8 bits
//         themselves, in the dynamic map, in blocks of 256 of them, each with an f32 absmax.
//   int8  T. Dettmers et al., 8-bit Optimizers via Block-wise Quantization, 2022, section 2: the
//         signed dynamic map of 256 values, blocks of 256, absmax in f32.
//
// Note [Chunks]
// Encoded weights lie in chunks of 1024 elements, each with everything that it takes to decode it,
// so that a chunk means the same wherever it is moved to. The last chunk of a weight is padded with
// zeros. Bytes of a chunk, numbers as f32 in the machine's order:
//
//   nf4   512 codes, the first of two elements in the upper half | 16 codes of absmax |
//         absmax of these | offset                                                     536 bytes
//   int8  1024 codes | 4 absmax                                                       1040 bytes
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zinc {

enum class BlockFormat : uint8_t { nf4, int8 };
std::string_view name_of(BlockFormat format);  // "nf4", "int8"
std::optional<BlockFormat> block_format_named(std::string_view name);

inline constexpr int64_t kFormatChunk = 1024;          // elements
inline constexpr int64_t kNestedNumel = 64 * 256;      // elements whose absmax share an absmax
int64_t block_numel(BlockFormat format);               // 64, 256
int64_t chunk_bytes(BlockFormat format);               // of a chunk
int64_t encoded_bytes(BlockFormat format, int64_t n);  // of n elements, in whole chunks

// Offsets in a chunk, in bytes: Note [Chunks].
inline constexpr int64_t kNf4AbsmaxAt = 512, kNf4NestedAt = 528, kNf4OffsetAt = 532;
inline constexpr int64_t kNf4ChunkBytes = 536;
inline constexpr int64_t kInt8AbsmaxAt = 1024;
inline constexpr int64_t kInt8ChunkBytes = 1040;

}  // namespace zinc
