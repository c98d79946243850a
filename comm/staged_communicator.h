// comm/staged_communicator.h: the collectives of a host backend over the memory of a GPU.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "core/device.h"

namespace zinc::comm {

// `host` moves host memory (single, local, mpi; phantom for a meta device). Every collective takes
// room of the tier pinned_host, labelled communication, from the current context's allocator,
// copies to it, lets `host` work there and copies back. The calling thread waits for the stream and
// then for the other ranks; the copy back is left to the stream. The caller's own workspace is not
// needed. A group of one rank works on the device. Note [Host tasks in a GPU's streams] in
// comm/host_communicator.cpp.
std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host, Device device);

}  // namespace zinc::comm
