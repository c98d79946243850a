// core/block_format.h: weights in 4 or 8 bits, and optimizer states in 8, in blocks that share a
// scale, as bitsandbytes defines them.
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
// Note [States in 8 bits]
// Optimizer states have the formats signed8 and unsigned8 (for values that are at least 0), by
// section 2 of the same paper: blocks of 256, the dynamic map, a scale in f32. Unlike weights they
// are encoded at every step, and travel as f32 to files and back. So their formats promise that
// decoded values encode to the bytes that they came from, and that zero bytes are zeros:
// - The scale is the block's value of the largest magnitude, with its sign; of two opposite values
//   the positive one. Its quotient is 1, which is in both maps. (-1 is in none: with absmax for a
//   scale a block whose largest value is negative would shrink each time.)
// - The quotient is value / scale, rounded once. Its code is the number of midpoints between the
//   neighbouring values of the map from 0 up that lie below its magnitude. So a tie goes to the
//   value nearer to 0. A negative quotient has the code's negative, in two's complement, down to
//   -127 in signed8; in unsigned8 it has the code 0.
// - unsigned8 has the unsigned dynamic map: 0, 254 midpoints of parts of [0.1, 1] times powers of
//   ten, and 1. A quotient above 0 has the code 1 at least: in the place of the midpoint between
//   the first two values there is 0. For AdamW divides by the root of these states, and one that is
//   rounded to 0 makes the step of its weight 1 / eps times the other moment.
// - A block of zeros has the scale 0. A block with a NaN or an infinity has the scale NaN: all its
//   values are decoded as NaN. Both have codes of 0.
// Scales below 2^-100 keep the second promise and no more: quotients of denormal numbers are
// coarse.
//
// Note [Chunks]
// Encoded weights lie in chunks of 1024 elements, each with everything that it takes to decode it,
// so that a chunk means the same wherever it is moved to. The last chunk of a weight is padded with
// zeros. Bytes of a chunk, numbers as f32 in the machine's order:
//
//   nf4   512 codes, the first of two elements in the upper half | 16 codes of absmax |
//         absmax of these | offset                                                     536 bytes
//   int8  1024 codes | 4 absmax                                                       1040 bytes
//   signed8, unsigned8   1024 codes | 4 scales                                        1040 bytes
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zinc {

enum class BlockFormat : uint8_t { nf4, int8, signed8, unsigned8 };
std::string_view name_of(BlockFormat format);                          // "nf4", "int8"
std::optional<BlockFormat> block_format_named(std::string_view name);  // of weights

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
