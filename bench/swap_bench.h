// bench/swap_bench.h: training with parameters and optimizer states on NVMe, beside the same
// training in memory and the bare disk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/dtype.h"
#include "offload/storage.h"

namespace zinc::bench {

struct SwapBenchOptions {
  std::string directory = ".";
  // A preset or a config.json. Empty: four GPT-2 blocks 1024 wide, 51 M weights, which a disk of
  // some GB/s moves in about the time in which two cores compute.
  std::string preset;
  DType dtype = DType::bf16;
  int64_t batch = 1;  // sequences per micro-batch
  int64_t seq = 8;
  int64_t accumulation = 8;       // micro-batches per step
  int64_t steps = 7;              // timed at most; one more warms up
  double limit_seconds = 40.0;    // no further round of steps is begun when it would end after this
  std::vector<std::string> runs;  // of swap_bench_runs(), in this order; empty: all
  offload::StorageOptions storage{.queue_depth = 32};
  int64_t probe_bytes = int64_t{128} << 20;  // of the file whose mixed rate is measured
};

// The figures of one configuration.
struct SwapRun {
  std::string name;
  // Indexed by timed step.
  std::vector<double> passes_seconds;  // forward and backward of all micro-batches
  std::vector<double> update_seconds;  // the optimizer step
  std::vector<double> step_seconds;    // both
  std::vector<double> busy_seconds;    // in both: a transfer was under way
  std::vector<double> stall_seconds;   // in both: training waited for a transfer
  int64_t passes_bytes = 0;            // read and written per step, by forward and backward
  int64_t update_bytes = 0;            // by the optimizer step
  double loss = 0.0;                   // of the last step
};

// "memory" and "memory vertical": states and parameters in host memory. On NVMe: "horizontal" and
// "vertical", where updates begin during backward; vertical too: "clipped", where the update
// follows backward, "late", clipped as well, where it ends beside the next forward pass, and
// "unverified", without CRC.
std::vector<std::string> swap_bench_runs();

struct SwapBenchResult {
  std::vector<SwapRun> runs;
  // The disk's mixed rate, by timed step: measured before the step.
  std::vector<double> mixed_bytes_per_second;
  double seconds = 0.0;  // of the whole bench

  // Null if the run was not asked for.
  const SwapRun* find(const std::string& name) const;
  // Medians over the timed steps; absent if one of the compared runs is missing.
  std::optional<double> vertical_gain() const;    // step of horizontal / vertical
  std::optional<double> update_overhead() const;  // clipped: update / max(disk, update in memory)
  std::optional<double> overlap_gain() const;     // step of clipped / vertical
  std::optional<double> late_gain() const;        // step of clipped / late
  std::optional<double> step_overhead() const;    // vertical: step / max(disk, step in memory)
  std::optional<double> crc_cost() const;         // vertical / unverified - 1
};

// Steps of all runs take turns, and with them the probe of the disk. Random tokens; AdamW without
// clipping. Throws IoError.
SwapBenchResult run_swap_bench(comm::World& world, const SwapBenchOptions& options,
                               const std::function<void(const std::string&, double)>& after_step);
std::string describe(const SwapBenchResult& result);

}  // namespace zinc::bench
