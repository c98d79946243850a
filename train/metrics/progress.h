// train/metrics/progress.h: the progress of a training run as text for a person. apps/ prints it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/phase_clock.h"
#include "offload/swap_traffic.h"

namespace zinc::train {

struct Progress {
  int64_t step = 0;
  int64_t total_steps = 0;
  double epoch = 0.0;
  double loss = 0.0;
  std::optional<double> val_loss;
  double lr = 0.0;
  double grad_norm = 0.0;
  std::optional<double> loss_scale;  // with a loss scale (f16)
  bool skipped = false;
  double seconds_per_step = 0.0;           // 0: not known yet; the first step is never counted
  double tokens_per_second = 0.0;          // 0: not known yet
  std::optional<double> flops_per_second;  // model FLOP/s
  // Part of the peak that is reached, if the peak is known.
  std::optional<double> flops_utilisation;
  std::optional<offload::SwapTraffic> swap;  // in this step, if the run swaps
  int64_t peak_bytes = 0;                    // device tier
};

// One line without a newline, fixed columns, for logs and pipes:
//   step   120/37256 | epoch 0.01 | loss 3.7812 | gnorm 0.870 | lr 1.00e-04 | 142.3 ms |
//   57.6k tok/s | 41.2% MFU | mem 18.4 GiB | ETA 1h27m
// val_loss, FLOP/s, MFU, scale and times appear where they are known; with offload to NVMe
// "swap 80.1 ms, waited 12.0 ms" comes after the speed. A skipped step says so in
// place of its norm.
std::string progress_line(const Progress& progress);

// The same figures for a terminal that redraws one line, cut to `width` columns: a bar first, then
// as many figures as fit, the most important ones first.
std::string live_line(const Progress& progress, int width);

struct EvaluationProgress {
  std::string set;      // the set's name; empty: the only one
  int64_t batches = 0;  // done, by all ranks
  int64_t total_batches = 0;
  double seconds = 0.0;  // since it began
};
// "evaluation 40/800 batches | 12 s | ETA 3m48s", "evaluation of NAME 40/..."; without an ETA
// before the first batch.
std::string evaluation_line(const EvaluationProgress& progress);

// Times of a step's phases in milliseconds, under DeepSpeed's names:
//   time (ms) | fwd: 12.31 | bwd: 25.07 | bwd_allreduce: 3.90 | step: 4.12
std::string breakdown_line(const PhaseSeconds& seconds);

// "41 s", "3m05s", "1h27m", "2d03h".
std::string format_duration(double seconds);
// "512 B", "18.4 GiB"; powers of 1024.
std::string format_bytes(int64_t bytes);
// "950", "57.6k", "1.24M"; powers of 1000.
std::string format_count(double count);

}  // namespace zinc::train
