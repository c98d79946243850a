// A folder for one test and memory that O_DIRECT takes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/error.h"

namespace zinc::offload {

class SwapFolder {
 public:
  SwapFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "zinc-swap-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw IoError("create", pattern, -1, errno);
    path_ = pattern;
  }
  ~SwapFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  SwapFolder(const SwapFolder&) = delete;
  SwapFolder& operator=(const SwapFolder&) = delete;

  const std::string& path() const { return path_; }
  bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t bytes, uint8_t fill = 0xee)
      : bytes_(static_cast<size_t>(bytes)),
        data_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes_)), std::free) {
    std::fill_n(data_.get(), bytes_, static_cast<std::byte>(fill));
  }
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }
  // Bytes that depend on the seed and the place alone.
  void fill_from(uint64_t seed) const {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (std::byte& byte : span()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::byte>(state >> 56);
    }
  }
  friend bool operator==(const AlignedBytes& a, const AlignedBytes& b) {
    return std::ranges::equal(a.span(), b.span());
  }

 private:
  size_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

// The IoError that `body` throws; a failed test and an empty one where it throws none.
template <class Body>
IoError io_error_of(Body&& body) {
  try {
    body();
  } catch (const IoError& error) {
    return error;
  }
  ADD_FAILURE() << "no IoError";
  return {"do", "", -1, 0};
}

}  // namespace zinc::offload
