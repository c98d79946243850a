// comm/transport.h: the interface of a backend with host buffers. HostCommunicator builds the
// collectives from it.
//
// A collective is one or two exchanges. In an exchange every rank has at most one message for each
// other rank. Calls run in the order of their streams, in the streams' threads, several at a time.
// Exchanges of different ranks match by Terms::meeting, never by arrival. So a transport must not
// make one meeting wait for another. Every call blocks until this rank's part is done and its
// buffers may be used again.
//
// A call that fails raises the lifeline, lets no peer touch the caller's memory any more, and
// throws CommError that names operation, sequence number and ranks. A call also throws if another
// rank has raised the lifeline. If the ranks' terms differ, it throws on every rank. If a message
// of an exchange has another size for its receiver than for its sender, it throws on the receiver,
// before a byte of the message is taken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/lifeline.h"

namespace zinc::comm {

struct Outgoing {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

struct Incoming {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// Takes bytes [first, first + bytes) of the data that every rank has for this rank; `sources` by
// rank.
using TakeSources =
    std::function<void(int64_t first, int64_t bytes, std::span<const std::byte* const> sources)>;

struct Exchange {
  // By rank of the group. A rank's own entry moves nothing; it is the data that the rank has for
  // itself.
  std::vector<Outgoing> to;
  // Destinations of messages. With `take`, only `bytes` counts, and all are equal.
  std::vector<Incoming> from;
  int64_t largest_bytes = 0;  // of all messages between any two ranks; the same on every rank
  bool same_to_all = false;   // all messages of this rank that are not empty are the same bytes
  // If set, it is called instead of copying messages to `from`. The pieces ascend, cover the
  // messages without a gap, and start at multiples of 64 bytes. Sources are valid during the call.
  TakeSources take;
  std::span<std::byte> workspace;  // for `take`: workspace_bytes() of the backend
};

// A sum in the backend's own order. Every rank gets its block of `count` elements (scatter), or all
// `count` of them.
struct NativeSum {
  const std::byte* in = nullptr;  // [size * count] (scatter); null: `out` holds the input
  std::byte* out = nullptr;       // [count], no part of `in`
  int64_t count = 0;
  DType dtype = DType::f32;  // f64 | f32 | bf16 | f16
  bool scatter = false;
};

// The members of a new group, in which this rank has the number `index`. `members` is empty for a
// rank in no group.
struct SplitPlan {
  std::vector<int> members;  // ranks of the parent
  int index = -1;
  int color = -1;
  uint64_t sequence = 0;  // number of the split among the parent's collectives
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  int world_rank() const { return world_rank(rank_); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  Lifeline& lifeline() const { return *lifeline_; }

  virtual void exchange(const Call& call, const Exchange& exchange) = 0;
  virtual void send(const Message& message, const std::byte* data) = 0;
  virtual void receive(const Message& message, std::byte* data) = 0;

  // Whether native_sum() may be called; the same on all ranks of the group.
  virtual bool sums_natively() const { return false; }
  virtual void native_sum(const Call& call, const NativeSum& sum);

  // Gives the bytes of all ranks, by rank, to every rank. All ranks bring the same number of bytes.
  // Blocks.
  using Agree = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;
  // Collective over the parent, also for ranks that join no group (they get null).
  virtual std::shared_ptr<Transport> split(const SplitPlan& plan, const Agree& agree) = 0;

  int64_t bytes_sent() const { return sent_.load(std::memory_order_relaxed); }
  int64_t bytes_received() const { return received_.load(std::memory_order_relaxed); }

 protected:
  Transport(int rank, std::vector<int> world_ranks, std::shared_ptr<Lifeline> lifeline)
      : rank_(rank), world_ranks_(std::move(world_ranks)), lifeline_(std::move(lifeline)) {}

  const std::shared_ptr<Lifeline>& shared_lifeline() const { return lifeline_; }
  void count_sent(int64_t bytes) { sent_.fetch_add(bytes, std::memory_order_relaxed); }
  void count_received(int64_t bytes) { received_.fetch_add(bytes, std::memory_order_relaxed); }
  // World ranks of the plan's members.
  std::vector<int> world_ranks_of(const SplitPlan& plan) const;

 private:
  int rank_;
  std::vector<int> world_ranks_;
  std::shared_ptr<Lifeline> lifeline_;
  std::atomic<int64_t> sent_ = 0;
  std::atomic<int64_t> received_ = 0;
};

// The error of a rank that stops because the lifeline was raised.
[[noreturn]] void throw_stopped(const std::string& what, const Lifeline& lifeline);
// The error of ranks that did not issue the same collective: `others` by rank, `mine` at `rank`.
[[noreturn]] void throw_disagreement(const std::vector<Terms>& terms, int rank,
                                     const std::vector<int>& world_ranks);
// Throws if the message from `peer` has another size than this rank expects.
void compare_size(const Terms& terms, const Transport& transport, int peer, int64_t sent_bytes,
                  int64_t expected_bytes);

}  // namespace zinc::comm
