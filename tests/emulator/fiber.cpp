#include "tests/emulator/fiber.h"

#include <sys/mman.h>

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

struct PooledStack {
  boost::context::stack_context allocate() {
    void* bottom = stack_pool().take();
#if defined(__SANITIZE_ADDRESS__)
    // What the stack's last user left poisoned.
    ASAN_UNPOISON_MEMORY_REGION(static_cast<std::byte*>(bottom) + kGuardBytes,
                                kStackBytes - kGuardBytes);
#endif
    boost::context::stack_context context;
    context.size = kStackBytes;
    context.sp = static_cast<std::byte*>(bottom) + kStackBytes;
    return context;
  }
  void deallocate(boost::context::stack_context& context) {
    stack_pool().give(static_cast<std::byte*>(context.sp) - kStackBytes);
  }
};

}  // namespace

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  PooledStack stack;
  const boost::context::stack_context context = stack.allocate();
  stack_ = static_cast<std::byte*>(context.sp) - kStackBytes + kGuardBytes;
  stack_bytes_ = kStackBytes - kGuardBytes;
  const boost::context::preallocated place(context.sp, context.size, context);
  fiber_ = boost::context::fiber(
      std::allocator_arg, place, stack, [this](boost::context::fiber&& resumer) {
        resumer_ = std::move(resumer);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(nullptr, &resumer_stack_, &resumer_stack_bytes_);
#endif
        body_();
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(nullptr, resumer_stack_, resumer_stack_bytes_);
#endif
        return std::move(resumer_);
      });
}

void Fiber::resume() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_, stack_bytes_);
#endif
  fiber_ = std::move(fiber_).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, resumer_stack_, resumer_stack_bytes_);
#endif
  resumer_ = std::move(resumer_).resume();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &resumer_stack_, &resumer_stack_bytes_);
#endif
}

}  // namespace zinc::emulator
