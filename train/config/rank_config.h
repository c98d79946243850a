// train/config/rank_config.h: a configuration for a rank that has connected.
#pragma once

#include <string>

#include "comm/world.h"
#include "train/config/config.h"

namespace zinc::train {

// Loads the configuration `path` and applies it to the rank: "zinc" keys (seed, num_threads,
// device_memory_limit, comm_deadline_seconds, trace) mean the same as in `zinc train`. For keys
// that the file leaves out the rank keeps the values that connect() was given; without either, the
// seed is the command's default. Throws as load_config() does, and ConfigError where a key cannot
// be applied any more; see World::configure(). Collective where there is a trace.
Config load_config(const std::string& path, comm::World& world, const Overrides& flags = {});

}  // namespace zinc::train
