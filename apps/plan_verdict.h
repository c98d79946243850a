// apps/plan_verdict.h: whether a planned run fits this machine, and what would make it fit.
#pragma once

#include <cstdint>
#include <string>

#include "train/plan/plan.h"

namespace zinc::apps {

// Lines for a person. `available_bytes`: of the host that `ranks_per_host` ranks share.
std::string verdict(const train::Plan& plan, const train::ModelConfigFile& model,
                    const train::Config& config, int64_t available_bytes, int ranks_per_host);

}  // namespace zinc::apps
