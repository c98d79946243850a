// bench/swap_bench.h: training with parameters and optimizer states on NVMe, beside the same
// training in memory and beside what the disk moves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/dtype.h"
#include "offload/storage.h"

namespace zinc::bench {

struct SwapBenchOptions {
  std::string directory = ".";
  std::string preset = "gpt2-124m";
  DType dtype = DType::bf16;
  int64_t batch = 1;  // sequences per micro-batch
  int64_t seq = 64;
  int64_t accumulation = 8;  // micro-batches per step
  int64_t steps = 3;         // timed; one more warms up
  offload::StorageOptions storage{.queue_depth = 32};
  int64_t probe_bytes = int64_t{256} << 20;  // of the file whose mixed rate is measured
};

// Of one configuration; medians of the timed steps.
struct SwapRun {
  std::string name;
  double passes_seconds = 0.0;  // forward and backward of all micro-batches
  double update_seconds = 0.0;  // the optimizer step
  double step_seconds = 0.0;    // both
  int64_t passes_bytes = 0;     // read and written per step, by forward and backward
  int64_t update_bytes = 0;     // by the optimizer step
  double loss = 0.0;            // of the last step
};

struct SwapBenchResult {
  // "memory" and "memory vertical": states and parameters in host memory. On NVMe: "horizontal" and
  // "vertical", where updates begin during backward; vertical too: "clipped", where the update
  // follows backward, and "unverified", without CRC.
  std::vector<SwapRun> runs;
  double mixed_bytes_per_second = 0.0;  // of the disk: measured before and after, the mean

  const SwapRun& at(const std::string& name) const;
  double disk_seconds(int64_t bytes) const {
    return static_cast<double>(bytes) / mixed_bytes_per_second;
  }
  double vertical_gain() const;    // step of horizontal / vertical
  double update_overhead() const;  // clipped: update / max(disk, update in memory)
  double overlap_gain() const;     // step of clipped / vertical
  double step_overhead() const;    // vertical: step / max(disk, step in memory)
  double crc_cost() const;         // vertical / unverified - 1
};

// Steps of all runs take turns. Random tokens; AdamW without clipping. Throws IoError.
SwapBenchResult run_swap_bench(comm::World& world, const SwapBenchOptions& options,
                               const std::function<void(const std::string&, double)>& after_step);
std::string describe(const SwapBenchResult& result);

}  // namespace zinc::bench
