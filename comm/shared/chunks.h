// comm/shared/chunks.h: messages in pieces of the size of a desk's buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zinc::comm {

// An empty message is one chunk of no bytes, which the reader takes all the same.
inline uint64_t num_chunks(int64_t bytes, int64_t chunk_bytes) {
  return static_cast<uint64_t>(std::max<int64_t>(1, (bytes + chunk_bytes - 1) / chunk_bytes));
}

inline int64_t chunk_begin(int64_t chunk_bytes, uint64_t k) {
  return static_cast<int64_t>(k) * chunk_bytes;
}

// Bytes of chunk `k` of a message; 0 behind its end.
inline int64_t chunk_length(int64_t message_bytes, int64_t chunk_bytes, uint64_t k) {
  return std::clamp<int64_t>(message_bytes - chunk_begin(chunk_bytes, k), 0, chunk_bytes);
}

// Null pointers are fine where there are no bytes.
inline void copy_bytes(std::byte* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace zinc::comm
