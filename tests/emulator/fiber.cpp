#include "tests/emulator/fiber.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace zinc::emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif
constexpr size_t kGuardBytes = 4096;

// Stacks are kept for the next block: a kernel call makes thousands.
class StackPool {
 public:
  ~StackPool() {
    for (void* stack : free_) munmap(stack, kStackBytes);
  }
  void* take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        void* stack = free_.back();
        free_.pop_back();
        return stack;
      }
    }
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();
    mprotect(stack, kGuardBytes, PROT_NONE);
    return stack;
  }
  void give(void* stack) {
    const std::lock_guard lock(mutex_);
    free_.push_back(stack);
  }

 private:
  std::mutex mutex_;
  std::vector<void*> free_;
};

StackPool& stack_pool() {
  static StackPool pool;
  return pool;
}

}  // namespace

Fiber::Fiber(std::function<Fiber*()> body)
    : body_(std::move(body)),
      mapping_(stack_pool().take()),
      stack_(static_cast<std::byte*>(mapping_) + kGuardBytes),
      stack_bytes_(kStackBytes - kGuardBytes) {
  restart();
}

Fiber::~Fiber() {
  if (mapping_ != nullptr) stack_pool().give(mapping_);
}

void Fiber::restart() {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(stack_, stack_bytes_);  // the part that its last user left poisoned
#endif
  // Tops that lie at one place of their pages would meet in a few lines of the processor's cache.
  const size_t number = reinterpret_cast<uintptr_t>(mapping_) / kStackBytes;
  const size_t unused = number * 5 % 64 * 64;
  context_ = boost::context::detail::make_fcontext(
      static_cast<std::byte*>(mapping_) + kStackBytes - unused, stack_bytes_ - unused, &Fiber::run);
}

void Fiber::switch_to(Fiber& to) { leave(to, false); }

void Fiber::leave(Fiber& to, [[maybe_unused]] bool for_good) {
  Switch change{this, &to};
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, to.stack_, to.stack_bytes_);
#endif
  arrive(boost::context::detail::jump_fcontext(to.context_, &change));
}

void Fiber::arrive(boost::context::detail::transfer_t transfer) {
  Fiber& from = *static_cast<Switch*>(transfer.data)->from;
  from.context_ = transfer.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &from.stack_, &from.stack_bytes_);
#endif
}

void Fiber::run(boost::context::detail::transfer_t transfer) {
  Fiber& self = *static_cast<Switch*>(transfer.data)->to;
#if defined(__SANITIZE_ADDRESS__)
  self.fake_stack_ = nullptr;
#endif
  self.arrive(transfer);
  self.leave(*self.body_(), true);
}

}  // namespace zinc::emulator
