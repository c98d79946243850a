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

void check_launch(Size3 grid, Size3 block, size_t dynamic_shared_bytes) {
  const auto refuse = [](const std::string& why) { throw Fault("launch refused: " + why); };
  if (block.count() == 0 || grid.count() == 0) refuse("an empty grid or block");
  if (block.count() > kMaxThreads || block.z > 64) {
    refuse(std::to_string(block.count()) + " threads in a block");
  }
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) refuse("the grid is too large");
  if (dynamic_shared_bytes > kMaxSharedBytes) {
    refuse(std::to_string(dynamic_shared_bytes) + " bytes of shared memory");
  }
}

}  // namespace

void set_seed(uint64_t seed) {
  schedule_seed = seed;
  launches = 0;
}

void run_grid(Size3 grid, Size3 block, size_t dynamic_shared_bytes,
              const std::function<void()>& body) {
  check_launch(grid, block, dynamic_shared_bytes);
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
        Block(grid, block, index, dynamic_shared_bytes, seed + at * 0x2545F4914F6CDD1Du).run(body);
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
