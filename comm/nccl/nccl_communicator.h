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
// Why this process cannot use NCCL, and the cure: the build, or this machine, has no NCCL. Empty
// where it can. The library is opened at the first call.
std::string why_no_nccl();
// The version of the loaded library, as in "2.28.9"; empty where there is none.
std::string nccl_version();

// The backend "nccl". Collective over `host`, through which the ranks exchange all but the data:
// the start, split, the news of a failure, the heartbeat. Blocks the host until all ranks have
// come, or `host`'s deadline has passed. Each rank has its own GPU, `device`, and calls from the
// thread that will issue collectives. Throws CommError, on all ranks where one fails.
//
// A collective is queued on the caller's stream and the host goes on; it waits only where NCCL
// connects a pair of ranks for the first time. The collectives and messages of all groups of one
// world run one after the other on this rank, in the order of their issue, whatever their streams:
// NCCL promises no progress to collectives of several groups that run at once. So of two ranks that
// exchange messages one receives first, and messages of a pair of ranks match in the order of their
// issue, whatever their tags.
//
// A world of one rank and its groups use NCCL too, where a collective of one rank has work to do.
// In a larger world a group of one rank does not use NCCL.
//
// Sums are ordered as Note [Ordered reduction] says: pieces of the parts travel as grouped sends
// and receives into the workspace, and a kernel adds them; ReduceAlgorithm::native is NCCL's own.
// Ranks do not compare the collectives that they issue: where these differ, the deadline passes. A
// thread watches the collectives that are under way. A failure of NCCL, a deadline that passes
// while this rank's own stream has come to the collective, and the news of another rank's failure
// abort NCCL here and fail the device with CommError (core/cuda_backend.h). Zinc's allocators do
// not count NCCL's own memory; they do count the memory of a barrier. Bytes are counted when a
// collective is issued.
std::unique_ptr<Communicator> make_nccl(std::unique_ptr<HostCommunicator> host, Device device);

}  // namespace zinc::comm
