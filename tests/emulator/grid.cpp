#include "tests/emulator/grid.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulator/block.h"

namespace zinc::emulator {
namespace {

std::atomic<uint64_t> schedule_seed{0};
std::atomic<uint64_t> launches{0};

constexpr unsigned kMaxWorkers = 4;

}  // namespace

void set_seed(uint64_t seed) {
  schedule_seed = seed;
  launches = 0;
}

std::string why_refused(const Launch& launch) {
  const Size3 &grid = launch.grid, &block = launch.block;
  const auto text = [](const Size3& size) {
    return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
  };
  if (block.count() == 0 || grid.count() == 0) return "an empty grid or block";
  if (block.count() > kMaxThreads || block.x > kMaxThreads || block.y > kMaxThreads ||
      block.z > 64) {
    return "a block of " + text(block) + " threads: at most 1024, and 64 in z";
  }
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    return "a grid of " + text(grid) + " blocks: at most 2147483647 x 65535 x 65535";
  }
  const size_t most = std::min(launch.max_dynamic_bytes, kMaxSharedBytes);
  if (launch.dynamic_shared_bytes > most) {
    return std::to_string(launch.dynamic_shared_bytes) + " dynamic bytes of shared memory, where " +
           (launch.opted_in ? "the kernel has opted in to "
                            : "one that has not opted in may have ") +
           std::to_string(most);
  }
  return "";
}

void run_grid(const Launch& launch, const std::function<void()>& body) {
  const Size3& grid = launch.grid;
  const std::string refused = why_refused(launch);
  if (!refused.empty()) throw Fault("launch refused: " + refused);
  Shuffle shuffle(schedule_seed * 0x9E3779B97F4A7C15u + launches++);
  std::vector<uint64_t> order(grid.count());
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[shuffle.below(i)]);
  const uint64_t seed = shuffle.next();

  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  uint64_t failed_block = order.size();
  const auto work = [&] {
    for (size_t i = next++; i < order.size(); i = next++) {
      const uint64_t at = order[i];
      const Size3 index(static_cast<unsigned>(at % grid.x),
                        static_cast<unsigned>(at / grid.x % grid.y),
                        static_cast<unsigned>(at / grid.x / grid.y));
      try {
        Block(launch, index, seed + at * 0x2545F4914F6CDD1Du).run(body);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (at < failed_block) {
          failed_block = at;
          failure = std::current_exception();
        }
      }
    }
  };
  const size_t workers = std::min<size_t>(
      {order.size(), kMaxWorkers, std::max(1u, std::thread::hardware_concurrency())});
  std::vector<std::thread> others;
  for (size_t i = 1; i < workers; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

const ThreadIds& ids() { return Block::current().thread_ids(); }

void warp_collective(const char* what, std::source_location where, uint32_t mask, const void* in,
                     void* out, Combine combine) {
  Block::current().warp_collective(what, where, mask, in, out, combine);
}

int block_barrier(std::source_location where, bool predicate) {
  return Block::current().barrier(where, predicate);
}

void* dynamic_shared() { return Block::current().dynamic_shared(); }

void* static_shared(const void* site, size_t bytes, size_t alignment) {
  return Block::current().static_shared(site, bytes, alignment);
}

void require_aligned(const void* address, size_t alignment, const char* what) {
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) {
    throw Fault(std::string(what) + ": the address is not aligned to " + std::to_string(alignment) +
                " bytes");
  }
}

void copy_async(void* destination, const void* source, size_t bytes, size_t source_bytes) {
  require_aligned(destination, bytes, "cp.async destination");
  require_aligned(source, bytes, "cp.async source");
  Block::current().copy_async(destination, source, bytes, source_bytes);
}

void commit_copies() { Block::current().commit_copies(); }
void wait_copies(int pending) { Block::current().wait_copies(pending); }

}  // namespace zinc::emulator
