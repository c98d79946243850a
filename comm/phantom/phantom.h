// comm/phantom/phantom.h: any world without peers, for a run on a meta device.
//
// Makes the checks of a real communicator, counts the bytes that it would move and moves nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "core/device.h"

namespace zinc::comm {

// The traffic of one kind of call, summed over its calls; bytes of this rank.
struct PhantomTraffic {
  int64_t calls = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
};
using PhantomLedger = std::map<std::string, PhantomTraffic, std::less<>>;  // by "all_gather", ...

struct PhantomOptions {
  int rank = 0;
  int size = 1;
  // the backend whose workspace_bytes() it gives: single, local, mpi, nccl
  std::string imitates = "mpi";
  Device device{.kind = DeviceKind::cpu, .index = 0, .meta = true};
  // The colour and key that rank r would pass to the n-th split (from 0). Without it a split gives
  // a group of all ranks where the colour is not negative.
  struct Wish {
    int color = 0;
    int key = 0;
  };
  std::function<Wish(int split, int rank)> wishes{};
  // Ranks of the world that share a host, for WorkCost::near_ranks. 0: not known.
  int ranks_per_host = 0;
  // Gets every call's traffic, groups made by split included; may be null.
  std::shared_ptr<PhantomLedger> ledger{};
};

// backend() is "phantom".
std::unique_ptr<Communicator> make_phantom(PhantomOptions options);

}  // namespace zinc::comm
