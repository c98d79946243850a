// comm/mpi/wire_transport.h: exchanges by MPI messages, between any hosts.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/session.h"
#include "comm/transport.h"

namespace zinc::comm {

class WireTransport final : public Transport {
 public:
  // `exchanges` and `messages` hold the same ranks, those of `world_ranks`.
  WireTransport(std::shared_ptr<MpiSession> session, MPI_Comm exchanges, MPI_Comm messages,
                int rank, std::vector<int> world_ranks, bool shared_memory);

  // The world of a session. `shared_memory`: groups of one host get transports of their own kind,
  // this world included (the result is then another transport).
  static std::shared_ptr<Transport> world(std::shared_ptr<MpiSession> session, bool shared_memory);

  void exchange(const Call& call, const Exchange& exchange) override;
  void send(const Message& message, const std::byte* data) override;
  void receive(const Message& message, std::byte* data) override;
  bool sums_natively() const override { return true; }
  void native_sum(const Call& call, const NativeSum& sum) override;
  std::shared_ptr<Transport> split(const SplitPlan& plan, const Agree& agree) override;

 private:
  // Null: no messages follow.
  void compare_offers(const Call& call, const Exchange* exchange);
  void deliver(const Call& call, const Exchange& exchange);
  void take_pieces(const Call& call, const Exchange& exchange);
  void wait(const WireBatch& batch, const Call& call);
  std::shared_ptr<WireBatch> batch_of_piece(const Call& call, const Exchange& exchange,
                                            int64_t begin, int64_t piece_bytes,
                                            std::byte* incoming);
  template <class Body>
  void guarded(const Body& body);

  std::shared_ptr<MpiSession> session_;
  MPI_Comm exchanges_;
  MPI_Comm messages_;
  bool shared_memory_;
};

}  // namespace zinc::comm
