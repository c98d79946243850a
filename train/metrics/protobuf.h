// train/metrics/protobuf.h: messages of protocol buffers, field by field, without their library.
//
// Format: protobuf.dev, "Encoding". A message is its fields in a row, each a key (number and wire
// type) and a value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace zinc::train {

// Appends the bytes of `value`, little-endian.
template <class T>
requires(std::integral<T> || std::floating_point<T>) void append_fixed(std::string& out, T value);

class Message {
 public:
  Message& integer(uint32_t field, int64_t value);  // int32, int64: a varint
  Message& number(uint32_t field, double value);    // double
  Message& number(uint32_t field, float value);     // float
  // string, bytes, and messages inside this one.
  Message& bytes(uint32_t field, std::string_view value);
  Message& message(uint32_t field, const Message& value) { return bytes(field, value.bytes()); }

  const std::string& bytes() const { return bytes_; }

 private:
  void key(uint32_t field, uint32_t wire);
  void varint(uint64_t value);

  std::string bytes_;
};

}  // namespace zinc::train
