#include <sys/mman.h>

#include <cstring>

#include "core/allocator.h"

namespace zinc {
namespace {

constexpr int kPoison = 0xff;

class HostMemorySource final : public MemorySource {
 public:
  void* acquire(Tier, int64_t bytes) override {
    const size_t size = whole_pages(bytes);
    const auto unit = static_cast<size_t>(kSegmentBytes);
    if (size < unit) return map(size);
    // A mapping starts at any page: take a unit more and give the edges back.
    std::byte* const start = map(size + unit);
    if (start == nullptr) return nullptr;
    const size_t head = (unit - reinterpret_cast<uintptr_t>(start) % unit) % unit;
    std::byte* const data = start + head;
    if (head > 0) munmap(start, head);
    munmap(data + size, unit - head);
    madvise(data, size, MADV_HUGEPAGE);  // advice: a kernel without huge pages refuses it
    return data;
  }

  void release(Tier, void* data, int64_t bytes) noexcept override {
    munmap(data, whole_pages(bytes));
  }

  void poison(Tier, void* data, int64_t bytes, StreamRef stream) override {
    stream.submit("poison", [=] { std::memset(data, kPoison, static_cast<size_t>(bytes)); });
  }

 private:
  static size_t whole_pages(int64_t bytes) {
    return static_cast<size_t>((bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment);
  }
  static std::byte* map(size_t size) {
    void* const data =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
  }
};

class MetaMemorySource final : public MemorySource {
 public:
  void* acquire(Tier, int64_t bytes) override {
    if (bytes > kEnd - next_) return nullptr;
    void* const data = reinterpret_cast<void*>(next_);
    next_ += (bytes + kSegmentBytes - 1) / kSegmentBytes * kSegmentBytes;
    return data;
  }
  void release(Tier, void*, int64_t) noexcept override {}
  void poison(Tier, void*, int64_t, StreamRef) override {}

 private:
  // No 64-bit machine of today maps anything here: user addresses end at 2^56, the kernel's begin
  // near 2^64.
  static constexpr int64_t kBegin = int64_t{1} << 58;
  static constexpr int64_t kEnd = int64_t{1} << 62;
  int64_t next_ = kBegin;
};

}  // namespace

std::unique_ptr<MemorySource> make_host_memory_source() {
  return std::make_unique<HostMemorySource>();
}
std::unique_ptr<MemorySource> make_meta_memory_source() {
  return std::make_unique<MetaMemorySource>();
}

}  // namespace zinc
