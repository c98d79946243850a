// apps/swap_preflight.h: the lines on swap files and host memory that are printed before a run
// begins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "zero/engine_config.h"

namespace zinc::apps {

bool swaps(const zero::EngineConfig& engine);
// Whether states, gradients or parameters are copied between host memory and device.
bool offloads(const zero::EngineConfig& engine);

// Notes about the I/O of swap files, if it is not libaio past the page cache.
std::vector<std::string> swap_notes(const zero::EngineConfig& engine);

// How fast a swap folder's disk is: a short probe in the folder, with the run's own `aio` section.
// Throws IoError.
plan::Disk probe_disk(const std::string& directory, const zero::AioConfig& aio);

struct SwapDisk {
  plan::Disk speed;
  std::string source;  // "by the hardware file", "measured now in /swap"
};
// The disk's speed from the hardware file, else from a probe of the (alphabetically first) swap
// folder. Absent if nothing is swapped, or if the folder cannot be used, which the engine will
// report. Throws IoError (ETIMEDOUT): the disk hangs.
std::optional<SwapDisk> swap_disk(const zero::EngineConfig& engine,
                                  const std::optional<plan::Hardware>& hardware);

// "swap per step and rank: 1.2 GiB read, 1.1 GiB written; 1100.0 ms at 2.10 and 3.00 GB/s (measured
// now in /swap)"; no time without a disk. All bytes are charged to it, of all ranks of the host.
std::string expected_swap(const plan::Plan& plan, const std::optional<SwapDisk>& disk);

// "host memory per step and rank: 1.2 GiB to the device, 0.9 GiB back; 23.4 ms at 55.0 GB/s and
// 17.6 ms at 55.0 GB/s, 40.1 ms computed by the host (by the hardware file)"; no times where the
// file has no "host", or there is none.
std::string expected_copies(const plan::Plan& plan);

}  // namespace zinc::apps
