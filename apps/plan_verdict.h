// apps/plan_verdict.h: whether a planned run fits this machine, and what would make it fit.
#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"
#include "plan/plan.h"

namespace zinc::apps {

// The memory that a rank may take on the device tier.
struct DeviceRoom {
  int64_t bytes = 0;  // 0: not known
  std::string words;  // where the number comes from
};
// The memory of the host that `ranks_per_host` ranks share, or of the first GPU, one for each rank;
// 0 bytes for a GPU that this process does not see.
DeviceRoom room_for(Device device, int ranks_per_host);

// Lines for a person; none where nothing is known of the room.
std::string verdict(const plan::Plan& plan, const hub::ModelConfigFile& model,
                    const train::Config& config, const DeviceRoom& room);

}  // namespace zinc::apps
