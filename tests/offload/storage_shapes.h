// tests/offload/storage_shapes.h: ways in which storage is asked to move blocks, and the transfer
// that all of them must get right.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "core/crc32c.h"
#include "offload/storage.h"
#include "tests/offload/swap_folder.h"

namespace zinc::offload {

inline constexpr int64_t kBlock = 4096;
inline constexpr int64_t kBytes = 64 * kBlock;
struct Shape {
  int queue_depth;
  int threads;
  bool single_submit;
  bool overlap_events;
};

inline StorageOptions options_of(const Shape& shape, int64_t block = kBlock) {
  return {.block_size = block,
          .queue_depth = shape.queue_depth,
          .threads = shape.threads,
          .single_submit = shape.single_submit,
          .overlap_events = shape.overlap_events};
}

inline constexpr std::array kShapes{Shape{1, 1, false, true}, Shape{8, 1, false, true},
                                    Shape{8, 1, true, true},  Shape{8, 1, false, false},
                                    Shape{4, 3, true, false}, Shape{64, 2, false, true}};

inline void expect_round_trip(Storage& storage, const File& file, int64_t bytes = kBytes) {
  const AlignedBytes written(bytes), found(bytes, 0);
  written.fill_from(7);
  IoHandle write = storage.write(file, 0, written.span(), Checksum::crc32c);
  write.wait();
  IoHandle read = storage.read(file, 0, found.span(), Checksum::crc32c);
  read.wait();
  EXPECT_TRUE(written == found);
  EXPECT_EQ(write.crc32c(), crc32c(written.span()));
  EXPECT_EQ(read.crc32c(), crc32c(written.span()));
}

}  // namespace zinc::offload
