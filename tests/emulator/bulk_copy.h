// tests/emulator/bulk_copy.h: a block's memory with compute capability 9.0: barriers that count
// arrivals and bytes (mbarrier), boxes of tensors that a hardware unit copies to shared memory
// (TMA), barriers of a part of the block, and the asynchronous proxy, through which TMA and wgmma
// see shared memory.
//
// A copy is done at a moment that the seed draws; until then its destination is poisoned. The
// asynchronous proxy sees writes of threads to shared memory only after fence.proxy.async. The
// emulator does not know which thread wrote a byte: one thread's fence publishes all writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace zinc::emulator {

// A box of a tensor in global memory, as cuTensorMapEncodeTiled describes it: dimension 0 is the
// one without gaps.
struct TensorMap {
  static constexpr int kMaxRank = 5;
  const std::byte* address = nullptr;
  int rank = 0;
  int element_bytes = 0;
  std::array<int64_t, kMaxRank> extent{};
  std::array<int64_t, kMaxRank> stride{};  // bytes
  std::array<int32_t, kMaxRank> box{};     // elements
  int swizzle_bytes = 0;                   // 0, 32, 64 or 128

  size_t box_bytes() const;
};

// Note [Swizzle]
// In the mode of 128 (64, 32) bytes, bits 4 to 6 (5, 4) of an address in shared memory are xored
// with bits 7 to 9 (8, 7): eight rows of 128 bytes have one chunk of 16 bytes in eight places.
uintptr_t swizzled_address(uintptr_t address, int swizzle_bytes);

// --- mbarrier. A phase is over when `count` threads have arrived and all expected bytes have come.
void init_mbarrier(uint64_t* barrier, uint32_t count);
// Lets the asynchronous proxy see what has been initialised.
void fence_mbarrier_init();
void arrive_mbarrier(uint64_t* barrier);
// The same, and the phase waits for so many bytes more.
void arrive_mbarrier_expecting(uint64_t* barrier, uint32_t bytes);
// Waits until the phase of this parity is over; the first phase has parity 0.
void wait_mbarrier(uint64_t* barrier, uint32_t parity,
                   std::source_location where = std::source_location::current());

// --- TMA. `at`: of each dimension, the box's first element, which may lie outside the tensor:
// elements outside are zeros. All bytes of the box count.
void copy_box(void* shared_destination, const TensorMap& map, uint64_t* barrier,
              const std::array<int32_t, TensorMap::kMaxRank>& at);

void fence_async_proxy();
// The same bytes as the asynchronous proxy sees them; of dynamic shared memory alone. Throws Fault
// where they lie outside, or where a copy still writes them.
const std::byte* async_view(const void* address, size_t bytes, const char* what);
// An address of dynamic shared memory as a number below 2^18, and back; never 0.
uint32_t shared_address(const void* address);
const std::byte* shared_pointer(uint32_t address);

// --- bar.sync and bar.arrive with a number from 1 to 15 and so many threads of the block.
void sync_named_barrier(int barrier, int threads,
                        std::source_location where = std::source_location::current());
void arrive_named_barrier(int barrier, int threads);

}  // namespace zinc::emulator
