// core/crc32.h: CRC-32 (polynomial 0x04C11DB7, reflected), as used by zip and gzip files. Zinc's
// own files have CRC-32C: core/crc32c.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zinc {

// `crc` continues an earlier value: crc32(b, crc32(a)) == crc32(a followed by b). Uses tables,
// eight bytes a step.
uint32_t crc32(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace zinc
