#include "tests/files/mapped_bytes.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <mutex>

namespace zinc::files {
namespace {

struct Interval {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// No allocation happens here: these calls come from within allocators.
struct Counter {
  std::mutex mutex;
  bool on = false;
  std::array<Interval, 4096> mapped{};
  size_t count = 0;
  int64_t live = 0;
};
Counter counter;

}  // namespace

MappedBytes::MappedBytes() {
  const std::lock_guard lock(counter.mutex);
  counter.on = true;
  counter.count = 0;
  counter.live = 0;
}
MappedBytes::~MappedBytes() {
  const std::lock_guard lock(counter.mutex);
  counter.on = false;
}
int64_t MappedBytes::live() const {
  const std::lock_guard lock(counter.mutex);
  return counter.live;
}

namespace {

[[maybe_unused]] void count_map(void* data, size_t size) {
  const std::lock_guard lock(counter.mutex);
  if (!counter.on || counter.count == counter.mapped.size()) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  counter.mapped[counter.count++] = {begin, begin + size};
  counter.live += static_cast<int64_t>(size);
}

[[maybe_unused]] void count_unmap(void* data, size_t size) {
  const std::lock_guard lock(counter.mutex);
  if (!counter.on) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  for (size_t i = 0; i < counter.count; ++i) {
    if (begin >= counter.mapped[i].begin && begin + size <= counter.mapped[i].end) {
      counter.live -= static_cast<int64_t>(size);
      return;
    }
  }
}

}  // namespace
}  // namespace zinc::files

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void* mmap(void* hint, size_t size, int protection, int flags, int file,
                      off_t offset) noexcept {
  const long result = syscall(SYS_mmap, hint, size, protection, flags, file, offset);
  void* const data = reinterpret_cast<void*>(result);
  if (data != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0 &&
      protection == (PROT_READ | PROT_WRITE)) {
    zinc::files::count_map(data, size);
  }
  return data;
}

extern "C" int munmap(void* data, size_t size) noexcept {
  zinc::files::count_unmap(data, size);
  return static_cast<int>(syscall(SYS_munmap, data, size));
}
#endif
