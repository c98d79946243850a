#include "comm/nccl/library.h"

#include "core/error.h"
#include "core/shared_library.h"

namespace zinc::comm {
namespace {

NcclFunctions load() {
  NcclFunctions nccl;
#if defined(ZINC_NCCL_EMULATED)
#define ZINC_NCCL_FUNCTION(member, name) nccl.member = &name
#else
  SharedLibrary library({.file = "libnccl.so.2",
                         .what = "NCCL",
                         .cure =
                             "install it, as the package nvidia-nccl-cu13 for one, and name its "
                             "folder in LD_LIBRARY_PATH",
                         .newer = "update NCCL to 2.14 or later"});
#define ZINC_NCCL_FUNCTION(member, name) library.find(nccl.member, #name)
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
#if !defined(ZINC_NCCL_EMULATED)
  nccl.missing = library.missing();
#endif
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
