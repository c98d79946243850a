// comm/staged_communicator.h: the collectives of a host backend over the memory of a GPU.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "core/device.h"

namespace zinc::comm {

// Makes a communicator for a GPU from `host`, which works on host memory (single, local, mpi;
// phantom for a meta device).
//
// Every collective allocates from the current context, in the tier pinned_host with the label
// communication. It copies there, lets `host` work, and copies back. The calling thread waits for
// the stream and then for the other ranks. The copy back is left to the stream. The caller's
// workspace is not used. A group of one rank works on the device. See Note [Host tasks in a GPU's
// streams] in comm/host_communicator.cpp.
std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> host, Device device);

}  // namespace zinc::comm
