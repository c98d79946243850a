#include "train/metrics/protobuf.h"

#include <bit>
#include <cstring>

namespace zinc::train {
namespace {

static_assert(std::endian::native == std::endian::little);

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

}  // namespace

template <class T>
requires(std::integral<T> || std::floating_point<T>) void append_fixed(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
template void append_fixed(std::string&, uint8_t);
template void append_fixed(std::string&, uint16_t);
template void append_fixed(std::string&, uint32_t);
template void append_fixed(std::string&, uint64_t);
template void append_fixed(std::string&, float);
template void append_fixed(std::string&, double);

void Message::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
  bytes_ += static_cast<char>(value);
}

void Message::key(uint32_t field, uint32_t wire) { varint((field << 3) | wire); }

Message& Message::integer(uint32_t field, int64_t value) {
  key(field, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

Message& Message::number(uint32_t field, double value) {
  key(field, kFixed64);
  append_fixed(bytes_, value);
  return *this;
}

Message& Message::number(uint32_t field, float value) {
  key(field, kFixed32);
  append_fixed(bytes_, value);
  return *this;
}

Message& Message::bytes(uint32_t field, std::string_view value) {
  key(field, kBytes);
  varint(value.size());
  bytes_ += value;
  return *this;
}

}  // namespace zinc::train
