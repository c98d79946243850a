#include "core/error.h"
#include "offload/block_queue.h"

namespace zinc::offload {

bool has_aio() { return false; }

std::unique_ptr<BlockQueue> make_aio_queue(int) {
  throw InvalidArgument("make_aio_queue: this build has no libaio; install libaio-dev and rebuild");
}

}  // namespace zinc::offload
