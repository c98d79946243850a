// comm/host_exchanges.h: the exchanges that the collectives consist of, as functions that run in a
// stream's order.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/partition.h"
#include "comm/transport.h"

namespace zinc::comm {

void run_all_gather(Transport& transport, const Call& call, const AllGather& args);
void run_reduce_scatter(Transport& transport, const Call& call, const ReduceScatter& args);
void run_all_reduce(Transport& transport, const Call& call, const AllReduce& args);
void run_broadcast(Transport& transport, const Call& call, const Broadcast& args);
// Reads `blocks`, not `args.counts`.
void run_all_to_all(Transport& transport, const Call& call, const AllToAll& args,
                    const AllToAllBlocks& blocks);
void run_shift(Transport& transport, const Call& call, const Shift& args);
void run_barrier(Transport& transport, const Call& call);

// Every rank's bytes at every rank, by rank.
std::vector<std::byte> run_agreement(Transport& transport, const Call& call,
                                     std::span<const std::byte> mine);

}  // namespace zinc::comm
