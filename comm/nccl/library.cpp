#include "comm/nccl/library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace zinc::comm {
namespace {

NcclFunctions load() {
  NcclFunctions nccl;
#if defined(ZINC_NCCL_EMULATED)
#define ZINC_NCCL_FUNCTION(member, name) nccl.member = &name
#else
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    nccl.missing = concat("NCCL is not found (", dlerror(),
                          "): install it, as the package nvidia-nccl-cu13 for one, and name its "
                          "folder in LD_LIBRARY_PATH");
    return nccl;
  }
  const auto find = [&]<class Function>(Function& member, const char* name) {
    member = reinterpret_cast<Function>(dlsym(library, name));
    if (member == nullptr && nccl.missing.empty()) {
      nccl.missing = concat("libnccl.so.2 has no ", name, ": update NCCL to 2.14 or later");
    }
  };
#define ZINC_NCCL_FUNCTION(member, name) find(nccl.member, #name)
#endif
  ZINC_NCCL_FUNCTION(get_version, ncclGetVersion);
  ZINC_NCCL_FUNCTION(get_unique_id, ncclGetUniqueId);
  ZINC_NCCL_FUNCTION(init_rank_config, ncclCommInitRankConfig);
  ZINC_NCCL_FUNCTION(get_async_error, ncclCommGetAsyncError);
  ZINC_NCCL_FUNCTION(finalize, ncclCommFinalize);
  ZINC_NCCL_FUNCTION(destroy, ncclCommDestroy);
  ZINC_NCCL_FUNCTION(abort, ncclCommAbort);
  ZINC_NCCL_FUNCTION(error_string, ncclGetErrorString);
  ZINC_NCCL_FUNCTION(last_error, ncclGetLastError);
  ZINC_NCCL_FUNCTION(group_start, ncclGroupStart);
  ZINC_NCCL_FUNCTION(group_end, ncclGroupEnd);
  ZINC_NCCL_FUNCTION(all_gather, ncclAllGather);
  ZINC_NCCL_FUNCTION(all_reduce, ncclAllReduce);
  ZINC_NCCL_FUNCTION(reduce_scatter, ncclReduceScatter);
  ZINC_NCCL_FUNCTION(send, ncclSend);
  ZINC_NCCL_FUNCTION(recv, ncclRecv);
#undef ZINC_NCCL_FUNCTION
  return nccl;
}

}  // namespace

const NcclFunctions& nccl_or_missing() {
  static const NcclFunctions functions = load();
  return functions;
}

const NcclFunctions& nccl() {
  const NcclFunctions& functions = nccl_or_missing();
  if (!functions.missing.empty()) throw CommError(functions.missing);
  return functions;
}

}  // namespace zinc::comm
