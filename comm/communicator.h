// comm/communicator.h: collectives between the ranks of a group.
//
// Every collective is queued on a stream and returns a Work at once. Buffers must stay in place
// until the Work is done. One thread issues to a communicator.
//
// All ranks of a group issue the same collectives, with the same sizes and dtypes, in the same
// order. Only the blocks of an all_to_all may differ in size (AllToAllCounts). Ranks match a
// collective by its place in that order. So streams may run at different speeds, and several
// collectives may run at the same time.
//
// The caller brings the workspace that a collective needs: `workspace_bytes()`. Communicators
// allocate no device memory, except for a barrier, which brings no buffer (comm/workspace.h).
//
// Note [Ordered reduction]
// The order of a sum is part of the contract. Elements are converted to f32 (f64 stays f64) and
// added over a fixed binary tree of ranks. For width 1, 2, 4, ... the partial sum at rank r (a
// multiple of 2 * width) adds the partial sum at r + width. An absent leaf is skipped, never added
// as zero. The result is rounded once to the output's dtype.
//
// reduce_scatter is an exchange of shards followed by that sum. all_reduce is an ordered
// reduce_scatter followed by an all_gather: the same bytes on the wire as a ring. So any two
// backends, and any two splits of one array into buckets, give the same bits.
//
// Errors: InvalidArgument at the call, for sizes, dtypes and devices that do not fit. CommError
// from Work::wait or the stream, if a peer is gone, has issued something else or misses the
// deadline; the message names operation, sequence number and ranks of the world. A failure on one
// rank reaches all ranks of the world: the communicator, and every other one that was split from
// the same world, is aborted on all ranks, and every later call throws. After the CommError no peer
// touches a buffer any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/cuda_backend.h"
#include "core/stream.h"
#include "core/view.h"

namespace zinc::comm {

// A queued collective.
class Work {
 public:
  Work() = default;  // already done
  explicit Work(Event event) : event_(std::move(event)) {}
  const Event& event() const { return event_; }
  bool query() const { return event_.query(); }
  void wait() const { event_.wait(); }  // blocks the host; throws CommError
  void wait_on(StreamRef stream) const { stream->wait(event_); }  // orders a stream after it

 private:
  Event event_;
};

// All views are contiguous, on the communicator's device. Views with no elements may be null.
struct AllGather {
  ConstView shard;  // [n] any dtype
  View out;         // [size * n] same dtype, rank-major; shard may be the rank's own place in it
};

struct ReduceScatter {
  ConstView in;             // [size * n] f64 | f32 | bf16 | f16; not changed
  View out;                 // [n] dtype of `in`, or f32; may be the rank's own place in `in`
  bool accumulate = false;  // add to `out` (in f32, then round) instead of overwriting
  View workspace;           // u8, at least workspace_bytes()
};

struct AllReduce {
  View inout;  // [n] f64 | f32 | bf16 | f16
  View workspace;
};

struct Broadcast {
  View inout;  // [n] any dtype
  int root = 0;
};

// How many elements this rank sends to each rank of the group, and receives from each, by rank and
// with this rank's own block. Counts may be 0.
struct AllToAllCounts {
  std::vector<int64_t> sent;      // [size]
  std::vector<int64_t> received;  // [size]
  int64_t largest = 0;            // the largest count between any two ranks; the same on every rank
};

// Without counts all blocks have the same size. With counts, the blocks lie one behind the other in
// the order of ranks. The counts are read at the call.
//
// What rank a sends to rank b must be what b receives from a. If it is not, b throws CommError
// before it takes any data, and the failure reaches all ranks. nccl does not compare the counts:
// the two ranks may miss the deadline, or b may get wrong data. A `largest` above all counts is
// allowed, but may cost time: processes that share memory exchange as many chunks as it fills.
struct AllToAll {
  ConstView in;  // [size * n], or [sum of sent], any dtype: block r goes to rank r
  View out;      // [size * n], or [sum of received], same dtype: block r came from rank r; must not
                 // overlap `in`
  const AllToAllCounts* counts = nullptr;  // null: blocks of n elements
};

// Every rank sends to the next one, and the last to the first: one turn of a ring.
struct Shift {
  ConstView in;  // [n] any dtype: goes to rank + 1
  View out;      // [n] same dtype: came from rank - 1; must not overlap `in`
};

enum class Collective : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  all_to_all,
  shift
};
std::string_view name_of(Collective collective);

// Tags of messages are in [0, kNumMessageTags).
inline constexpr int kNumMessageTags = 1024;

// How sums over ranks are made: by the ordered tree, or natively, in the backend's own order. Only
// nccl, and mpi between hosts, have native sums; other backends take the tree for both. A native
// reduce_scatter of mpi has at most 2^31 - 1 elements per rank.
enum class ReduceAlgorithm : uint8_t { ordered, native };

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string_view backend() const = 0;  // "single", "local", "mpi", "nccl", "phantom"

  // True if a collective that is queued on a GPU's stream never makes the host wait for work queued
  // before it.
  virtual bool follows_streams() const { return false; }

  virtual Work all_gather(const AllGather& args, StreamRef stream) = 0;
  virtual Work reduce_scatter(const ReduceScatter& args, StreamRef stream) = 0;
  virtual Work all_reduce(const AllReduce& args, StreamRef stream) = 0;
  virtual Work broadcast(const Broadcast& args, StreamRef stream) = 0;
  virtual Work all_to_all(const AllToAll& args, StreamRef stream) = 0;
  virtual Work shift(const Shift& args, StreamRef stream) = 0;
  // Messages between two ranks match in the order of their issue per (source, destination, tag).
  // Sizes must be equal. A send may block its stream until the message is received. So of two ranks
  // that exchange messages, one must receive first, or both use two worker streams.
  virtual Work send(ConstView data, int destination, int tag, StreamRef stream) = 0;
  virtual Work receive(View data, int source, int tag, StreamRef stream) = 0;
  virtual Work barrier(StreamRef stream) = 0;

  // Records the work that `body` queues as a CUDA graph (record_cuda_graph()), collectives of this
  // communicator included. Needs follows_streams() or a group of one rank; otherwise a collective
  // throws. A launch counts as one collective: all ranks launch it at the same place in the order
  // of issue, and the deadline holds for the launch as a whole. This object must outlive the graph.
  virtual std::unique_ptr<CudaGraph> record(StreamRef stream, const std::function<void()>& body);

  // Bytes of workspace for a collective over `bytes` bytes of its larger buffer (`in` of
  // reduce_scatter, `inout` of all_reduce) of `dtype`.
  virtual int64_t workspace_bytes(Collective collective, int64_t bytes, DType dtype) const = 0;

  // Ranks with one colour form a group, ordered by (key, rank). Collective; blocks the host. A
  // negative colour takes part in no group and gets null. The group inherits deadline and
  // algorithm.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Makes every collective under way fail with CommError, on this rank and on its peers, in this
  // communicator and in all that came from the same world. Any thread. Does not wait.
  virtual void abort(std::string_view reason) noexcept = 0;

  // Sets the name that errors and the heartbeat give to a rank of the world, as "rank 5 (data 1,
  // pipe 0)"; empty: "rank 5". Groups that are split off later inherit it. Call it before anything
  // is issued.
  virtual void describe_ranks(std::function<std::string(int world_rank)>) {}

  // How long a collective may wait for its peers without any of its data moving. Applies to
  // collectives issued from now on.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  std::chrono::milliseconds deadline() const { return deadline_; }
  void set_reduce_algorithm(ReduceAlgorithm algorithm) { algorithm_ = algorithm; }
  ReduceAlgorithm reduce_algorithm() const { return algorithm_; }

  // Payload bytes that this rank has sent to and received from other ranks in collectives and
  // messages that are done. Of n bytes in all, over `size` ranks, a rank sends about
  // (size - 1) / size * n in reduce_scatter and all_gather, twice that in all_reduce.
  virtual int64_t bytes_sent() const = 0;
  virtual int64_t bytes_received() const = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_;
  int size_;
  std::chrono::milliseconds deadline_{std::chrono::minutes(10)};
  ReduceAlgorithm algorithm_ = ReduceAlgorithm::ordered;
};

}  // namespace zinc::comm
