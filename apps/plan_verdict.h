// apps/plan_verdict.h: whether a planned run fits this machine, and what would make it fit.
#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"
#include "plan/plan.h"

namespace zinc::apps {

// What a rank may take of the device tier here.
struct DeviceRoom {
  int64_t bytes = 0;  // 0: not known
  std::string words;  // where that comes from
};
// Of the host that `ranks_per_host` ranks share, or of the first GPU, one for each rank; nothing is
// known of a GPU where this process sees none.
DeviceRoom room_for(Device device, int ranks_per_host);

// Lines for a person; none where nothing is known of the room.
std::string verdict(const plan::Plan& plan, const hub::ModelConfigFile& model,
                    const train::Config& config, const DeviceRoom& room);

}  // namespace zinc::apps
