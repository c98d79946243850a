// core/crc32c.h: CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected), as used by TensorBoard
// event files, checkpoints and swap space. Hardware instruction where the CPU has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zinc {

// `crc` continues an earlier value: crc32c(b, crc32c(a)) == crc32c(a followed by b).
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);
// The same without the instruction: what a CPU that has none runs.
uint32_t crc32c_by_table(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace zinc
