// apps/swap_preflight.h: what is said of swap files before a run begins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/plan/plan.h"
#include "zero/engine_config.h"

namespace zinc::apps {

bool swaps(const zero::EngineConfig& engine);

// Notes about what carries the blocks of swap files, where that is not libaio past the page cache.
std::vector<std::string> swap_notes(const zero::EngineConfig& engine);

// How fast a swap folder's disk is: a short probe in the folder, with the run's own `aio` section.
// Throws IoError.
train::Disk probe_disk(const std::string& directory, const zero::AioConfig& aio);

// "swap per step and rank: 1.2 GiB read, 1.1 GiB written; 1.10 s at 2.1 and 3.0 GB/s (measured
// now)". `disk`: what the hardware file says; without, the disk is probed, and there is no time
// where that fails. The ranks of a host share the disk.
std::string expected_swap(const train::Plan& plan, const zero::EngineConfig& engine,
                          std::optional<train::Disk> disk);

}  // namespace zinc::apps
