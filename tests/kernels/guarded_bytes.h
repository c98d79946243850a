// tests/kernels/guarded_bytes.h: memory between canaries.
#pragma once

#include <cstddef>
#include <memory>

namespace zinc::test {

// `bytes` bytes whose surroundings are watched: under the address sanitizer an access outside them
// stops the program; without it a write outside fails the test that runs when they are freed.
class GuardedBytes {
 public:
  GuardedBytes() {}
  // The address is a multiple of 256, plus `misalignment`.
  explicit GuardedBytes(size_t bytes, size_t misalignment = 0);

  std::byte* get() const { return data_.get(); }
  size_t bytes() const { return data_.get_deleter().bytes; }
  bool is_intact() const;
  friend bool operator==(const GuardedBytes& a, std::nullptr_t) { return a.data_ == nullptr; }

 private:
  struct Free {
    Free() {}  // g++ takes a defaulted one for deleted here
    Free(size_t bytes_, size_t misalignment_) : bytes(bytes_), misalignment(misalignment_) {}
    size_t bytes = 0;
    size_t misalignment = 0;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
};

}  // namespace zinc::test
