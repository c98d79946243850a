// data/records/byte_stream.h: the bytes of a file from front to back, unpacked on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace zinc::data {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills the front of `out` and returns the number of bytes; 0 only at the end. Throws DataError
  // for a file that is damaged, IoError where the system fails.
  virtual size_t read(std::span<char> out) = 0;
};

// A name that ends in ".gz" is unpacked. DataError where there is no such file, ConfigError where
// this build cannot unpack it.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

// Characters one by one, with the number of the line. A byte order mark at the front is left out.
class TextInput {
 public:
  static constexpr int kEnd = -1;

  explicit TextInput(const std::string& path);

  // The next byte, or kEnd.
  int peek() { return at_ < size_ || fill() ? static_cast<unsigned char>(block_[at_]) : kEnd; }
  int get() {
    const int c = peek();
    if (c == kEnd) return c;
    ++at_;
    if (c == '\n') ++line_;
    return c;
  }
  // The line of the next byte, from 1.
  int64_t line() const { return line_; }

 private:
  bool fill();

  std::unique_ptr<ByteStream> stream_;
  std::vector<char> block_;
  size_t at_ = 0;
  size_t size_ = 0;
  int64_t line_ = 1;
};

}  // namespace zinc::data
