#include "tests/kernels/guarded_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace zinc::test {
namespace {

constexpr size_t kGuard = 256;
constexpr std::byte kCanary{0xa5};

bool all_canaries(const std::byte* begin, size_t bytes) {
  return std::all_of(begin, begin + bytes, [](std::byte value) { return value == kCanary; });
}

[[maybe_unused]] bool guards_are_intact(const std::byte* data, size_t bytes, size_t misalignment) {
  return all_canaries(data - misalignment - kGuard, kGuard + misalignment) &&
         all_canaries(data + bytes, kGuard);
}

}  // namespace

GuardedBytes::GuardedBytes(size_t bytes, size_t misalignment) {
  auto* all = static_cast<std::byte*>(
      ::operator new(bytes + misalignment + 2 * kGuard, std::align_val_t(kGuard)));
  std::memset(all, static_cast<int>(kCanary), bytes + misalignment + 2 * kGuard);
  data_ =
      std::unique_ptr<std::byte[], Free>(all + kGuard + misalignment, Free(bytes, misalignment));
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(all, kGuard + misalignment);
  ASAN_POISON_MEMORY_REGION(data_.get() + bytes, kGuard);
#endif
}

bool GuardedBytes::is_intact() const {
#if defined(__SANITIZE_ADDRESS__)
  return true;  // a write there would have stopped the program
#else
  return data_ == nullptr ||
         guards_are_intact(data_.get(), bytes(), data_.get_deleter().misalignment);
#endif
}

void GuardedBytes::Free::operator()(std::byte* data) const {
  std::byte* all = data - misalignment - kGuard;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(all, bytes + misalignment + 2 * kGuard);
#else
  if (!guards_are_intact(data, bytes, misalignment)) {
    ADD_FAILURE() << "something wrote outside an array of " << bytes << " bytes";
  }
#endif
  ::operator delete(all, std::align_val_t(kGuard));
}

}  // namespace zinc::test
