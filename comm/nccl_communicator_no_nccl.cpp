#include "comm/nccl/nccl_communicator.h"
#include "core/error.h"

namespace zinc::comm {

bool built_with_nccl() { return false; }
std::string why_no_nccl() {
  return "this zinc was built without NCCL: install libnccl-dev for the CUDA toolkit in use and "
         "configure again";
}
std::string nccl_version() { return ""; }

std::unique_ptr<Communicator> make_nccl(std::unique_ptr<HostCommunicator>, Device) {
  throw CommError(why_no_nccl());
}

}  // namespace zinc::comm
