// tests/emulator/grid.h: the CUDA execution model on host threads.
//
// A grid's blocks are shared out over OS threads, in an order shuffled by seed; a block's threads
// are fibers of one OS thread that switch only where the model makes them meet: at barriers and
// warp collectives. Which fiber runs next is drawn from the seed. Code that is right gives the same
// bits under every seed; a missing barrier, a race between threads or between blocks does not.
//
// A violation of the model is a Fault with the kernel's source lines: threads that wait for others
// which never come (a divergent shuffle, a barrier in a branch), a misaligned access, too much
// shared memory. Shared memory is poisoned (all bits set: NaN) when a block starts. The limits are
// those of compute capability 9.0. Static bytes show when a block declares them, so a launch that
// asks for too much with them is refused then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

namespace zinc::emulator {

class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// dim3 and uint3 of CUDA.
struct Size3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr Size3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr uint64_t count() const { return uint64_t{x} * y * z; }
};

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kMaxThreads = 1024;             // of a block
inline constexpr size_t kMaxSharedBytes = 227 * 1024;     // of a block, static and dynamic
inline constexpr size_t kDefaultSharedBytes = 48 * 1024;  // the part of it without opting in
// The dynamic part begins at a multiple of this: the compiler pads the static part.
inline constexpr size_t kSharedAlignment = 1024;

// The schedules of all launches from now on; a launch's own number is mixed in.
void set_seed(uint64_t seed);

struct Launch {
  Size3 grid, block;
  size_t dynamic_shared_bytes = 0;
  size_t max_dynamic_bytes = kDefaultSharedBytes;  // most dynamic bytes that the kernel may have
  bool opted_in = false;  // opted in to more than kDefaultSharedBytes, static and dynamic together
};
// Why CUDA would refuse it; empty: it would not, unless static bytes come to too much with it.
std::string why_refused(const Launch& launch);

// Runs `body` once for every thread of the grid and returns when all are done; rethrows the first
// Fault (or other exception), in block order. Throws Fault where CUDA refuses the launch.
void run_grid(const Launch& launch, const std::function<void()>& body);
// Runs a kernel that has not opted in to shared memory.
inline void run_grid(Size3 grid, Size3 block, size_t dynamic_shared_bytes,
                     const std::function<void()>& body) {
  run_grid({.grid = grid, .block = block, .dynamic_shared_bytes = dynamic_shared_bytes}, body);
}

struct ThreadIds {
  Size3 thread{0, 0, 0}, block{0, 0, 0}, block_size, grid_size;
  int lane = 0;
};
// The ids of the calling fiber; throws Fault outside a kernel.
const ThreadIds& ids();

// A collective of the lanes in `mask`: `combine` is called once, by the last lane to arrive, with
// each lane's own `in` and `out` (null for lanes that are not in `mask`). All lanes must come to
// the same place with the same mask.
using Combine = void (*)(const void* const in[kWarpSize], void* const out[kWarpSize],
                         uint32_t mask);
void warp_collective(const char* what, std::source_location where, uint32_t mask, const void* in,
                     void* out, Combine combine);

// All threads of the block, at one place; returns the number of threads whose predicate held.
int block_barrier(std::source_location where, bool predicate);

// The block's dynamic shared memory, aligned to kSharedAlignment.
void* dynamic_shared();
// The block's static shared variable that `site` (an address, one per declaration) stands for.
void* static_shared(const void* site, size_t bytes, size_t alignment);

// Throws Fault where `address` is not a multiple of `alignment`.
void require_aligned(const void* address, size_t alignment, const char* what);

// cp.async: `destination` (in shared memory) is poisoned until the wait that covers its group;
// the bytes are read as late as the model allows. `source_bytes` < `bytes` fills with zeros.
void copy_async(void* destination, const void* source, size_t bytes, size_t source_bytes);
void commit_copies();
// Waits until at most `pending` of the newest groups of this thread are not complete.
void wait_copies(int pending);

}  // namespace zinc::emulator
