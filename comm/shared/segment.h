// comm/shared/segment.h: the memory that the ranks of a group share, as threads of one process or
// as processes of one host.
//
// Note [Desks]
// A rank offers data on one of its desks: a key, the terms, and either chunks in the desk's two
// buffers (processes) or the address of its request (threads). Readers look through the rank's
// desks for their key. The owner posts a desk by a ticket and reuses it when every reader has taken
// everything, so a rank may leave an exchange before the slowest reader, and exchanges match by
// key, in whatever order ranks come to them. A collective is an offer of every rank to every other;
// a message is an offer to one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "comm/call.h"
#include "comm/shared/bell.h"

namespace zinc::comm {

// Exchanges and messages of one rank and group that may be under way at the same time. A context
// has five streams. With all desks in use, the next exchange blocks until an earlier one is done.
inline constexpr int kNumDesks = 8;
inline constexpr int kNumBuffers = 2;  // of a desk: one buffer is read while the other is filled

// How far a reader is with a desk: chunks taken, or one of these.
inline constexpr uint64_t kReading = std::numeric_limits<uint64_t>::max() - 1;  // direct only
inline constexpr uint64_t kAllTaken = std::numeric_limits<uint64_t>::max();

struct alignas(64) FaultRecord {
  std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 raised
  int32_t world_rank;
  uint32_t length;
  char reason[1012];
};

struct alignas(64) RankRecord {  // written by its rank
  Bell posted;                   // rung when one of the rank's desks is posted
  std::atomic<uint32_t> departed;
  std::atomic<uint32_t> blocked;  // operations that wait for a peer right now
  std::atomic<uint32_t> pulse;    // advances while one of them waits
  std::atomic<int32_t> process;   // 0 where the ranks share a process or process ids mean nothing
};

struct alignas(64) Desk {
  std::atomic<uint64_t> ticket;  // > 0, new for every offer; 0 while one is being written
  std::atomic<uint64_t> key_number;
  std::atomic<uint64_t> key_channel;
  std::atomic<uint64_t> staged;  // chunks that were put into the buffers so far
  Bell staged_bell;              // rung by the owner
  Bell taken_bell;               // rung by readers
  Terms terms;
  const void* direct;  // the Exchange (collective) or payload (message) of a rank in this process
};

struct alignas(64) Progress {
  std::atomic<uint64_t> chunks;
  int64_t bytes;  // of the owner's message to the reader in an exchange; written before the ticket
};

struct SegmentShape {
  int size = 1;
  // of each buffer of a desk, a multiple of 64; 0: the ranks share a process
  int64_t buffer_bytes = 0;
};

class Segment {
 public:
  static int64_t bytes_of(const SegmentShape& shape);
  // Memory of this process, ready for use.
  static std::shared_ptr<Segment> on_heap(const SegmentShape& shape);

  // Memory that `owner` keeps mapped: bytes_of(shape) bytes at a multiple of 64.
  Segment(std::shared_ptr<void> owner, std::byte* memory, const SegmentShape& shape)
      : owner_(std::move(owner)), memory_(memory), shape_(shape) {}
  // Call once, in the process that made the memory, before any other rank uses it.
  void construct();

  const SegmentShape& shape() const { return shape_; }
  FaultRecord& fault() const { return *at<FaultRecord>(0); }
  RankRecord& rank(int rank) const;
  Desk& desk(int owner, int index) const;
  // How far `reader` is with a desk of `owner`.
  Progress& taken(int owner, int index, int reader) const;
  std::byte* buffer(int owner, int index, uint64_t chunk) const;

 private:
  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  std::shared_ptr<void> owner_;
  std::byte* memory_;
  SegmentShape shape_;
};

}  // namespace zinc::comm
