// tests/emulator/block.h: one block of a grid while it runs on an OS thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <typeindex>
#include <vector>

#include "tests/emulator/fiber.h"
#include "tests/emulator/grid.h"

namespace zinc::emulator {

// SplitMix64.
class Shuffle {
 public:
  explicit Shuffle(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t n) { return (next() >> 32) * n >> 32; }  // n < 2^32
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
};

// The threads of a block that can go on: a bit each. A block has at most 32 warps.
class ReadyThreads {
 public:
  // With `in_order`, warps come in an order drawn from `shuffle`.
  ReadyThreads(int warps, bool in_order, Shuffle& shuffle);

  bool empty() const { return warps_ == 0; }
  void add(int thread);
  // Removes any thread, or any of the first warp in order that has one.
  int take(Shuffle& shuffle);

 private:
  bool in_order_ = false;
  uint32_t warps_ = 0;                  // bit p: the warp at position p of the order has a thread
  std::array<uint32_t, 32> lanes_{};    // by position
  std::array<uint8_t, 32> position_{};  // by warp
  std::array<uint8_t, 32> warp_at_{};   // by position
};

// All bits set: NaN. The address sanitizer stops what touches it, where there is one.
void poison(void* data, size_t bytes);
void lift_poison(void* data, size_t bytes);

// Poisoned memory between canaries, which the address sanitizer watches where there is one.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const;  // aligned to kAlignment
  bool contains(const void* address, size_t bytes) const;
  bool is_intact() const;

  static constexpr size_t kAlignment = kSharedAlignment;

 private:
  size_t bytes_ = 0;
  std::byte* all_ = nullptr;  // guard, bytes_, guard
};

class Block {
 public:
  Block(const Launch& launch, Size3 index, uint64_t seed);

  void run(const std::function<void()>& body);

  // The block of the calling fiber; throws Fault outside a kernel.
  static Block& current() {
    if (current_ == nullptr) throw_outside();
    return *current_;
  }

  const ThreadIds& thread_ids() const { return running_->ids; }
  void warp_collective(const char* what, std::source_location where, uint32_t mask, const void* in,
                       void* out, Combine combine);
  int barrier(std::source_location where, bool predicate);
  // Lets the calling thread wait until `is_over()`, which is asked again after every changed().
  void wait_until(const char* what, std::source_location where, std::function<bool()> is_over);
  void changed();
  // Work beside the threads: it is done in any order, at a moment that the seed draws, soon or
  // late, at the latest when no thread can go on.
  void do_later(std::function<void()> work);
  // The state that a unit of the multiprocessor has for this block; made at first use.
  template <class T>
  T& unit() {
    std::shared_ptr<void>& found = units_[typeid(T)];
    if (found == nullptr) found = std::make_shared<T>();
    return *static_cast<T*>(found.get());
  }
  // Asked when all threads have ended; throws Fault where they left something undone.
  void check_at_end(std::function<void()> check) { checks_.push_back(std::move(check)); }
  int thread_index() const { return running_->index; }
  int num_threads() const { return static_cast<int>(threads_.size()); }

  void* dynamic_shared() { return dynamic_shared_.data(); }
  size_t dynamic_bytes() const { return dynamic_bytes_; }
  void* static_shared(const void* site, size_t bytes, size_t alignment);
  // Throws Fault where the bytes are not all shared memory of this block.
  void require_shared(const void* address, size_t bytes, const char* what) const;
  void copy_async(void* destination, const void* source, size_t bytes, size_t source_bytes);
  void commit_copies();
  void wait_copies(int pending);

 private:
  struct AsyncCopy {
    void* destination;
    const void* source;
    size_t bytes;
    size_t source_bytes;
  };
  // The place where a thread waits, and the condition.
  struct Wait {
    const char* what = nullptr;  // null: it does not wait
    std::source_location where;
    uint32_t mask = 0;
    const void* in = nullptr;
    void* out = nullptr;
    Combine combine = nullptr;
  };
  struct Thread {
    Fiber* fiber = nullptr;  // null: it has not started
    ThreadIds ids;
    int index = 0;
    Wait wait;
    std::function<bool()> is_over;  // for wait_until()
    int barrier_count = 0;          // the result of the last barrier
    std::vector<AsyncCopy> open_group;
    std::vector<std::vector<AsyncCopy>> groups;  // the oldest first
  };
  struct Unwind {};  // leaves a fiber after another one failed

  [[noreturn]] static void throw_outside();
  void run_thread();  // running_, to its end
  Fiber* run_fiber(Fiber& self);
  // Chooses who goes on, and gives it a fiber.
  Fiber& choose_next();
  void do_one_of_later();
  // Does later work until a thread can go on, or none is left.
  void do_later_while_stuck();
  Thread& take_ready() { return threads_[static_cast<size_t>(ready_.take(shuffle_))]; }
  void suspend();
  void fail(std::exception_ptr failure);
  void make_ready(Thread& thread);
  void complete(const AsyncCopy& copy);
  [[noreturn]] void throw_stuck() const;
  bool in_shared(const void* address, size_t bytes) const;

  Size3 block_size_;
  Shuffle shuffle_;
  std::vector<Thread> threads_;
  ReadyThreads ready_;
  const std::function<void()>* body_ = nullptr;
  Fiber scheduler_;  // the fiber that runs when no thread can go on
  std::deque<Fiber> fibers_;
  std::vector<Fiber*> idle_;  // fibers whose threads have ended
  Thread* running_ = nullptr;
  size_t left_ = 0;  // threads that have not ended
  std::exception_ptr failure_;
  std::vector<std::function<void()>> later_;
  // About how many rounds such work waits while threads can go on; 0: all. The first one draws it.
  std::optional<uint64_t> rounds_of_later_;
  std::vector<std::function<void()>> checks_;
  std::map<std::type_index, std::shared_ptr<void>> units_;
  int at_barrier_ = 0;
  int predicates_ = 0;
  SharedMemory dynamic_shared_;
  std::map<const void*, SharedMemory> static_shared_;
  size_t dynamic_bytes_ = 0;
  size_t static_bytes_ = 0;
  bool opted_in_ = false;

  static inline thread_local Block* current_ = nullptr;
};

}  // namespace zinc::emulator
