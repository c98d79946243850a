// comm/device_collectives.h: which communicator serves the GPUs of a world's ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "core/device.h"

namespace zinc::comm {

enum class DeviceCollectives : uint8_t {
  automatic,  // nccl where ranks are several, each has a GPU of its own and the build has NCCL,
              // else staged
  staged,     // the host's communicator, through pinned memory
  nccl,       // for one rank too; an error where it cannot serve
  given,      // the communicator serves the device as it is
  absent,     // this rank cannot go on; its peers stay on the host's communicator to learn why
};
// "auto", "mpi" (staged) or "nccl"; throws ConfigError for another name.
DeviceCollectives parse_device_collectives(std::string_view name);

// The backend that a plan of several ranks assumes: "nccl" or "mpi". `spread`: every rank has a GPU
// of its own.
std::string planned_backend(DeviceCollectives wish, Device device, bool spread);

struct ChosenCollectives {
  std::unique_ptr<Communicator> communicator;
  std::string how{};  // "NCCL 2.28.9", "staged through host memory: ..."; empty for one rank alone
                      // without NCCL
};

// Chooses the communicator. Collective over `host`, whose ranks agree on what they find, unless
// `wish` leaves no choice. Throws CommError with the cure if NCCL was asked for and cannot serve,
// before NCCL is started.
ChosenCollectives serve_device(std::unique_ptr<Communicator> host, Device device,
                               DeviceCollectives wish);

}  // namespace zinc::comm
