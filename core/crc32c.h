// core/crc32c.h: CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected), as used by TensorBoard
// event files, checkpoints and swap space. On a CPU with VPCLMULQDQ it is as fast as memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace zinc {

// `crc` continues an earlier value: crc32c(b, crc32c(a)) == crc32c(a followed by b).
uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);
// The same checksum without VPCLMULQDQ, as other CPUs compute it: by the instruction of SSE 4.2
// alone (or the table), or by the table.
uint32_t crc32c_by_instruction(std::span<const std::byte> data, uint32_t crc = 0);
uint32_t crc32c_by_table(std::span<const std::byte> data, uint32_t crc = 0);

// Joins checksums of neighbours that were made apart, where the later has `later_bytes` bytes:
// join(crc32c(a), crc32c(b)) == crc32c(a followed by b).
class Crc32cJoin {
 public:
  explicit Crc32cJoin(int64_t later_bytes);
  uint32_t operator()(uint32_t earlier, uint32_t later) const;

 private:
  // By bit: the remainder that the bit becomes behind later_bytes zero bytes.
  std::array<uint32_t, 32> shift_;
};

}  // namespace zinc
