// tests/emulator/nccl.h: planted faults of the emulated NCCL (tests/emulator/nccl.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace zinc::emulator {

// This rank never joins a communicator; -1: all do.
void set_nccl_absent_rank(int rank);

// Makes every communicator fail with `why`, as NCCL does when a peer's process has gone.
void fail_nccl(const std::string& why);

// Calls so far, of all ranks, by name: "init", "group", "abort", "send", "receive", "all_gather",
// "all_reduce", "reduce_scatter".
std::map<std::string, int64_t> nccl_calls();

}  // namespace zinc::emulator
