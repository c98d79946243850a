// bench/fit_bench.h: whether `zinc plan --fit` and keys that are "auto" choose well, by runs.
//
// On CPU ranks that are threads of this process, with one thread each and the machine's own rates
// (bench/measure_hardware.h), small models:
//   the search   every candidate is timed once; at each of several limits of memory the chosen one
//                stands against the fastest candidate that fits
//   "auto"       each key that fills memory, at growing limits of memory
// Seconds are those of a processor, per step and rank: of a machine that others use, too, they say
// more than the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/hardware.h"

namespace zinc::bench {

struct FitBenchOptions {
  int world = 2;
  int limits = 12;           // of memory, from the least that any candidate takes to the most
  int rounds = 2;            // in each round every candidate runs; the fastest step counts
  int64_t global_batch = 8;  // sequences of a step
  int64_t shrink = 1;        // divides the models' width; above 1 no figure says anything
};

struct FitBenchRow {
  int64_t limit = 0;     // bytes of device and host memory of a rank
  std::string words;     // the chosen candidate
  int64_t planned = 0;   // bytes reserved
  int64_t measured = 0;  // bytes reserved by the fullest rank
  double predicted_seconds = 0.0;
  double seconds = 0.0;
  std::string best_words;
  double best_seconds = 0.0;  // of the fastest candidate that fits
  double ratio() const { return seconds / best_seconds; }
  bool is_within() const { return measured <= limit && measured == planned; }
};

struct FitBenchModel {
  std::string name;
  int candidates = 0;
  std::vector<FitBenchRow> rows;  // by limit
};

// A key that is "auto", with memory for a share of what it may keep.
struct FillBenchRow {
  std::string key;
  int share = 0;         // per cent; 0: the least that the run takes
  int64_t reserved = 0;  // bytes, as planned
  int64_t measured = 0;
  double gathered_bytes = 0.0;  // bytes that a rank sends in all_gathers of a step
  double predicted_seconds = 0.0;
  double seconds = 0.0;
};

struct FitBenchResult {
  plan::Hardware hardware;
  std::vector<FillBenchRow> fills;
  std::vector<FitBenchModel> models;
  double seconds = 0.0;
  // True if every chosen candidate is within its limit, as planned, and takes at most `ratio` times
  // as long as the best.
  bool holds(double ratio) const;
};

FitBenchResult run_fit_bench(const FitBenchOptions& options,
                             const std::function<void(const std::string&)>& progress);
std::string describe(const FitBenchResult& result);

}  // namespace zinc::bench
