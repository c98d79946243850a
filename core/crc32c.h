// core/crc32c.h: CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected), as used by TensorBoard
// event files, checkpoints and swap space. As fast as memory is read where the CPU has VPCLMULQDQ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace zinc {

// `crc` continues an earlier value: crc32c(b, crc32c(a)) == crc32c(a followed by b).
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);
// The same as other CPUs run it: with the instruction of SSE 4.2 alone (or the table), by table.
uint32_t crc32c_by_instruction(std::span<const std::byte> data, uint32_t crc = 0);
uint32_t crc32c_by_table(std::span<const std::byte> data, uint32_t crc = 0);

// Joins checksums of neighbours that were made apart, where the later has `later_bytes` bytes:
// join(crc32c(a), crc32c(b)) == crc32c(a followed by b).
class Crc32cJoin {
 public:
  explicit Crc32cJoin(int64_t later_bytes);
  uint32_t operator()(uint32_t earlier, uint32_t later) const;

 private:
  std::array<uint32_t, 32> shift_;  // what the later bytes, were they zero, make of each bit
};

}  // namespace zinc
