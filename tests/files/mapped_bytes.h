// tests/files/mapped_bytes.h: counts what the process maps, without asking zinc.
#pragma once

#include <cstdint>

namespace zinc::files {

// While it lives, mmap and munmap of this program are counted: anonymous readable and writable
// memory that is mapped and not yet unmapped. Sanitizers own these calls: `works` is false there.
class MappedBytes {
 public:
  MappedBytes();
  ~MappedBytes();
  MappedBytes(const MappedBytes&) = delete;
  MappedBytes& operator=(const MappedBytes&) = delete;
  int64_t live() const;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr bool works = false;
#else
  static constexpr bool works = true;
#endif
};

}  // namespace zinc::files
