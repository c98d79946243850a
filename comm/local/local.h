// comm/local/local.h: ranks as threads of one process.
//
// The same collectives, order, errors and deadlines as between processes; ranks read each other's
// buffers directly. There is no global state: two groups in one process know nothing of each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/heartbeat.h"
#include "comm/world.h"

namespace zinc::comm {

// Communicators of ranks 0 .. size - 1, each for use by one thread. With `buffer_bytes` > 0 (a
// multiple of 64) messages go through buffers of that size, as between processes.
std::vector<std::unique_ptr<Communicator>> make_local_group(
    int size, int64_t buffer_bytes = 0,
    const std::vector<std::shared_ptr<Heartbeat>>& heartbeats = {});

// Calls `body` once per communicator, each in its own thread with its own World (source "threads"),
// and returns when all threads have ended. When a thread throws, the group is aborted. The first
// exception is thrown again, with its type, and its message begins with "rank <r>: ".
void run_ranks(std::vector<std::unique_ptr<Communicator>> communicators,
               const ConnectOptions& options, const std::function<void(World&)>& body);

// run_ranks() on a new local group; heartbeats and deadline as the options say.
void run_local_ranks(int size, const ConnectOptions& options,
                     const std::function<void(World&)>& body);

}  // namespace zinc::comm
