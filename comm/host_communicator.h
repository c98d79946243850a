// comm/host_communicator.h: the collectives over host memory, built from exchanges of a Transport.
// The backends single, local and mpi are this class over different transports.
//
// Issuing a collective checks its arguments, gives it its place in the group's sequence and queues
// it; matching between ranks goes by that place. So ranks may run their streams at any speed and in
// any order, as long as they issue alike.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/heartbeat.h"
#include "comm/transport.h"

namespace zinc::comm {

// The part of a communicator that queued collectives share; it lives until the last of them is
// done.
struct Endpoint {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Heartbeat> heartbeat;                 // null: none is written
  std::string group;                                    // "world", "world/0"
  std::function<std::string(int world_rank)> describe;  // names a rank in errors; may be empty
};

class HostCommunicator final : public Communicator {
 public:
  // `backend` is a name that workspace_bytes_of() knows, and static.
  HostCommunicator(std::string_view backend, std::shared_ptr<Transport> transport,
                   std::shared_ptr<Heartbeat> heartbeat, std::string group = "world");

  std::string_view backend() const override { return backend_; }
  Work all_gather(const AllGather& args, StreamRef stream) override;
  Work reduce_scatter(const ReduceScatter& args, StreamRef stream) override;
  Work all_reduce(const AllReduce& args, StreamRef stream) override;
  Work broadcast(const Broadcast& args, StreamRef stream) override;
  Work all_to_all(const AllToAll& args, StreamRef stream) override;
  Work shift(const Shift& args, StreamRef stream) override;
  Work send(ConstView data, int destination, int tag, StreamRef stream) override;
  Work receive(View data, int source, int tag, StreamRef stream) override;
  Work barrier(StreamRef stream) override;
  int64_t workspace_bytes(Collective collective, int64_t bytes, DType dtype) const override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  void describe_ranks(std::function<std::string(int world_rank)> describe) override;
  void abort(std::string_view reason) noexcept override;
  int64_t bytes_sent() const override { return endpoint_->transport->bytes_sent(); }
  int64_t bytes_received() const override { return endpoint_->transport->bytes_received(); }
  const std::shared_ptr<Endpoint>& endpoint() const { return endpoint_; }

 private:
  // The next collective of the group; it consists of `meetings` exchanges.
  Call next_call(Terms terms, int meetings);
  Call next_sum(Terms terms, int meetings);  // by the current ReduceAlgorithm
  template <class Body>
  Work issue(const char* label, const Call& call, StreamRef stream, Body body);
  template <class Body>
  Work issue_message(const char* label, const Message& message, StreamRef stream, Body body);
  Message next_message(const ConstView& data, int peer, int tag, bool sending);
  void check_alive(std::string_view op) const;

  std::string_view backend_;
  std::shared_ptr<Endpoint> endpoint_;
  uint64_t last_sequence_ = 0;
  uint64_t last_meeting_ = 0;
  uint64_t last_native_ = 0;
  int num_splits_ = 0;
  Event last_in_one_thread_;                           // Note [Host tasks in a GPU's streams]
  std::map<std::pair<int, int>, uint64_t> last_sent_;  // by (peer, tag)
  std::map<std::pair<int, int>, uint64_t> last_received_;
};

}  // namespace zinc::comm
