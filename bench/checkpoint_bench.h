// bench/checkpoint_bench.h: the cost of a checkpoint for a run: the pause, the write, and the
// training beside it, compared with memory and disk in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/world.h"
#include "core/dtype.h"

namespace zinc::bench {

struct CheckpointBenchOptions {
  std::string directory = ".";  // a folder is made in it, and deleted
  std::string preset = "gpt2-124m";
  DType dtype = DType::bf16;
  int64_t batch = 1;
  int64_t seq = 128;
  int64_t rounds = 5;  // timed; one more warms up
};

// Medians of the rounds, of one rank; bytes of one checkpoint.
struct CheckpointBenchResult {
  int64_t bytes = 0;
  double stall_seconds = 0.0;   // a checkpoint that is written beside training: until it goes on
  double copy_seconds = 0.0;    // one thread's memcpy of as many bytes
  double write_seconds = 0.0;   // a checkpoint that training waits for, until it is committed
  double plain_seconds = 0.0;   // as many bytes to one file, in blocks of 4 MiB, with a sync
  double load_seconds = 0.0;    // open, verify, load; pages may be cached
  double step_seconds = 0.0;    // of training without a write
  double beside_seconds = 0.0;  // of a step beside a write
};

CheckpointBenchResult run_checkpoint_bench(comm::World& world,
                                           const CheckpointBenchOptions& options);
std::string json_of(const CheckpointBenchOptions& options, const CheckpointBenchResult& result);

}  // namespace zinc::bench
