// comm/nccl/library.h: the functions of NCCL that comm/nccl calls, found when they are first asked
// for, so that a program starts where the library is missing.
#pragma once

#include <nccl.h>

#include <string>

namespace zinc::comm {

struct NcclFunctions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;

  std::string missing;  // the missing part and the cure; empty: nothing is missing
};

// The library is looked for once per process, and never closed: its own threads and exit handlers
// may outlive us.
const NcclFunctions& nccl_or_missing();
// Throws CommError where the library is missing.
const NcclFunctions& nccl();

}  // namespace zinc::comm
