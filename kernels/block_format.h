// kernels/block_format.h: weights in 4 or 8 bits, in blocks that share a scale, as bitsandbytes
// defines them.
//
// A block's values are divided by its largest magnitude (absmax), and each becomes the place of the
// nearest value of a code of 16 or 256 values in [-1, 1]: the number of midpoints of neighbours
// that lie below it. All arithmetic is in f32.
//
//   nf4   T. Dettmers et al., QLoRA, 2023, Appendix E: 16 values, blocks of 64. Double
//   quantisation:
//         absmax minus their mean over the whole weight (`offset`) are in 8 bits themselves, in the
//         dynamic map, in blocks of 256 of them, each with an f32 absmax of its own.
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
#include <span>
#include <string_view>
#include <vector>

#include "core/host_device.h"
#include "core/view.h"

namespace zinc::kernels {

enum class BlockFormat : uint8_t { nf4, int8 };
std::string_view name_of(BlockFormat format);  // "nf4", "int8"
std::optional<BlockFormat> block_format_named(std::string_view name);

inline constexpr int64_t kFormatChunk = 1024;          // elements
inline constexpr int64_t kNestedNumel = 64 * 256;      // elements whose absmax share an absmax
int64_t block_numel(BlockFormat format);               // 64, 256
int64_t chunk_bytes(BlockFormat format);               // of a chunk
int64_t encoded_bytes(BlockFormat format, int64_t n);  // of n elements, in whole chunks

std::span<const float, 16> nf4_values();    // ascending
std::span<const float, 256> dynamic_map();  // ascending

// What the chunks of a weight in nf4 have in common.
struct NestedAbsmax {
  float offset = 0.0f;
  std::vector<float> absmax;  // per kNestedNumel elements
};

// The largest magnitude of each block of x to `absmax`, one per block, the last one perhaps
// shorter. x: [n] contiguous host memory of any float dtype. False where a value is NaN or
// infinite. Synchronous, on the caller's OpenMP threads; as the next three.
bool block_absmax(BlockFormat format, const ConstView& x, std::span<float> absmax);
// Of all blocks of a weight in nf4, in order. The mean is made in f64.
NestedAbsmax nest(std::span<const float> absmax);

struct Encode {
  ConstView x;  // [n] contiguous host memory, any float dtype
  BlockFormat format = BlockFormat::nf4;
  int64_t begin = 0;                     // of x in its weight: a multiple of kFormatChunk
  const NestedAbsmax* nested = nullptr;  // of the whole weight: nf4
  View y;  // [encoded_bytes(n)] u8, host memory aligned to 8, overwrites
};
// Deterministic. Of x without NaN and infinities.
void encode(const Encode& args);

}  // namespace zinc::kernels
