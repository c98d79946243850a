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

struct SwapDisk {
  train::Disk speed;
  std::string source;  // "by the hardware file", "measured now in /swap"
};
// What the hardware file says of the disk, else a probe of the (alphabetically first) swap folder.
// None where nothing is swapped or the folder cannot be used: the engine meets that too. Throws
// IoError (ETIMEDOUT): the disk hangs.
std::optional<SwapDisk> swap_disk(const zero::EngineConfig& engine,
                                  const std::optional<train::Hardware>& hardware);

// "swap per step and rank: 1.2 GiB read, 1.1 GiB written; 1100.0 ms at 2.10 and 3.00 GB/s (measured
// now in /swap)"; no time without a disk. All bytes are charged to it, of all ranks of the host.
std::string expected_swap(const train::Plan& plan, const std::optional<SwapDisk>& disk);

}  // namespace zinc::apps
