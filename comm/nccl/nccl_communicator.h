// comm/nccl/nccl_communicator.h: collectives by NCCL, between ranks that have a GPU each. Without
// NCCL in the build, a stand-in of the same interface throws (comm/nccl_communicator_no_nccl.cpp).
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/host_communicator.h"
#include "core/device.h"

namespace zinc::comm {

bool built_with_nccl();
// Why this process cannot use NCCL, and the cure: the build has none, or this machine; empty where
// it can. The library is opened when it is first asked for.
std::string why_no_nccl();
// Of the library that is loaded, as in "2.28.9"; empty where there is none.
std::string nccl_version();

// The backend "nccl". Collective over `host`, whose ranks meet through it for what is not data: the
// start, split, the news of a failure, the heartbeat. Blocks the host until all ranks have come, or
// `host`'s deadline has passed. Each rank calls from the thread that will issue, with a GPU of its
// own; streams are those of `device`. Throws CommError, on all ranks where one fails.
//
// A collective is queued on the caller's stream and the host goes on; it waits only where NCCL
// connects a pair of ranks for the first time. The collectives and messages of all groups of one
// world run one after the other on this rank, in the order of their issue, whatever their streams:
// NCCL promises no progress to collectives of several groups that run at once. So of two ranks that
// exchange messages one receives first, and messages of a pair of ranks match in the order of their
// issue, whatever their tags.
//
// A world of one rank joins NCCL too, and so do its groups: their collectives are NCCL's, as far as
// a single rank has work for it. In a larger world a group of one rank does without.
//
// Sums are ordered as Note [Ordered reduction] says: pieces of the parts travel as grouped sends
// and receives into the workspace, and a kernel adds them; ReduceAlgorithm::native is NCCL's own.
// What ranks issued is not compared: where it differs, the deadline passes. A thread watches what
// is under way. A failure of NCCL, a deadline that passes while this rank's own stream has come to
// the collective, and the news of another rank's failure abort NCCL here and fail the device with
// CommError (core/cuda_backend.h). NCCL's own memory is not counted by zinc's allocators; a
// barrier's is. Bytes are counted at the issue.
std::unique_ptr<Communicator> make_nccl(std::unique_ptr<HostCommunicator> host, Device device);

}  // namespace zinc::comm
