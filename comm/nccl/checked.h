// comm/nccl/checked.h: NCCL's return codes as errors.
#pragma once

#include <nccl.h>

#include <string_view>

#include "comm/nccl/library.h"
#include "core/error.h"

namespace zinc::comm {

// Throws CommError unless the call succeeded, or goes on in the background.
inline void check_nccl(ncclResult_t result, std::string_view call, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* detail = comm == nullptr ? nullptr : nccl().last_error(comm);
  const bool says_more = detail != nullptr && *detail != '\0';
  throw CommError(str(call, " failed: ", nccl().error_string(result), says_more ? ": " : "",
                      says_more ? detail : ""));
}

}  // namespace zinc::comm
