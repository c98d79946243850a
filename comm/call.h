// comm/call.h: the description of one collective or message: queued with it, compared between
// ranks, and named in errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace zinc::comm {

enum class Operation : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  all_to_all,
  shift,
  barrier,
  split,
  message,
};
std::string_view name_of(Operation operation);

// The terms on which all ranks of a group must agree. Ranks compare them before a byte of payload
// is used. They travel between ranks as these 32 bytes.
struct Terms {
  uint64_t sequence = 0;  // among the group's collectives, counted from 1 as they are issued
  uint64_t meeting = 0;   // among the group's exchanges; all_reduce and broadcast consist of two
  int64_t count = 0;  // elements: of the shard (all_gather, reduce_scatter), of the largest block
                      // (all_to_all) or of the whole (all_reduce, broadcast, shift)
  int32_t root = 0;
  Operation operation = Operation::barrier;
  DType dtype = DType::u8;
  uint8_t native = 0;  // 1: summed by the backend's own reduction
  uint8_t padding = 0;

  friend bool operator==(const Terms&, const Terms&) = default;
};
static_assert(sizeof(Terms) == 32);

// "all_reduce #17 (1024 x f32)"
std::string to_string(const Terms& terms);

struct Call {
  Terms terms;
  std::chrono::nanoseconds deadline{};  // longest wait without progress
  uint64_t native_order = 0;            // place among the group's native sums, from 1; 0: not one
};

// One message between two ranks. Messages match by (source, destination, tag, sequence).
struct Message {
  int peer = 0;  // rank in the group: the destination of a send, the source of a receive
  int tag = 0;
  uint64_t sequence = 0;  // among this rank's sends (receives) with this peer and tag, from 1
  int64_t bytes = 0;
  bool sending = false;
  std::chrono::nanoseconds deadline{};
};

// "send #3 to rank 2 with tag 7 (4096 bytes)"; `world_rank` is the peer's.
std::string describe(const Message& message, int world_rank);

// "rank 2", "ranks 1, 3 and 5"
std::string name_ranks(const std::vector<int>& ranks);

// "5 s", "250 ms"
std::string describe(std::chrono::nanoseconds duration);

}  // namespace zinc::comm
