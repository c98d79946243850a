// bench/kernel_bench.h: verifies and times registered kernels; `zinc bench kernels` and
// zinc_bench_kernels call it. Nothing here prints; bench/kernel_report.h writes the results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/free_shape.h"
#include "bench/imported_results.h"
#include "bench/registry.h"
#include "core/context.h"

namespace zinc::bench {

// The clock of a sample.
enum class KernelTimer : uint8_t {
  automatic,  // host on the CPU, events on a GPU
  graph,      // GPU: events around one launch of a CUDA graph of all runs of the sample
};

struct KernelBenchOptions {
  std::string filter;         // ECMAScript regular expression searched in "op pass dtype shape"
  std::vector<DType> dtypes;  // empty: all
  std::vector<std::string> passes;
  ModelShape model;
  std::vector<FreeShape> shapes;  // one after another, instead of the model's; empty: the model's
  std::optional<Extent> extent;   // absent: memory on the CPU, gpu on a GPU
  double min_seconds = 0.3;       // of kernel time per entry
  double max_noise = 0.0;         // goes on until the noise is at most this share; 0: no limit
  int min_samples = 5;
  int max_samples = 1000;
  bool cold = true;    // go round enough instances to fill the caches twice
  bool verify = true;  // against the f64 path
  KernelTimer timer = KernelTimer::automatic;
  bool baseline = true;  // time an entry's baseline too, where this machine has it
  Baselines imported;    // figures of others
};

struct KernelResult {
  std::string op, pass, dtype, shape;
  std::string device;  // "cpu", "cuda:0"
  bool cold = true;
  int samples = 0;
  int runs_per_sample = 1;  // one after another; a sample is their mean
  double median_us = 0.0, mean_us = 0.0, p95_us = 0.0, min_us = 0.0;
  double noise_percent = 0.0;  // half the interquartile range over the median
  int64_t bytes = 0, flops = 0;
  double gb_per_s = 0.0, gflop_per_s = 0.0;  // at the median
  std::string ceiling;                       // "stream", "gemm" or ""
  double ceiling_value = 0.0;       // GB/s or GFLOP/s, median of the probe run between the samples
  double percent_of_ceiling = 0.0;  // median over pairs of neighbouring samples
  double percent_of_spec = 0.0;     // bytes per second over the data sheet's; 0: not known
  // Memory-bound ops of the CPU: GB/s of one thread on arrays that lie in its cache, times the
  // threads. This is the limit of arithmetic alone; if it is below the stream ceiling, arithmetic
  // is the bound.
  double in_cache_gb_per_s = 0.0;
  double percent_of_bound = 0.0;  // of the lower of ceiling_value and in_cache_gb_per_s
  std::string timer;              // "host", "events", "graph"
  // With a graph: the most registers and spilled bytes of a thread among the kernels; 0 elsewhere.
  int registers = 0;
  int64_t spilled_bytes = 0;
  // The fastest kernel of another program for the same work; "" and 0 if none is known.
  std::string baseline;
  double baseline_us = 0.0;
  double speed_to_baseline = 0.0;  // baseline_us / median_us: above 1 where ours is faster
  std::string baseline_missing;    // why this machine has not got the entry's
  Deviation deviation;
  bool was_verified = true;  // false: nothing was compared
  bool verified() const { return !was_verified || deviation.ok(); }
  std::string name() const { return op + " " + pass + " " + dtype + " " + shape; }
};

// The machine and the versions of the figures.
struct BenchedMachine {
  std::string cpu;  // model name
  std::string gpu;  // "" on the CPU
  int threads = 0;
  std::string library;   // library of the GEMM door
  std::string versions;  // of zinc, its compiler, CUDA
  std::string clocks;    // the driver's figures for the GPU before and after; "" if it has none
};

struct KernelReport {
  BenchedMachine machine;
  std::string preset;
  std::vector<KernelResult> results;
  bool all_verified() const;
};

// One entry: makes instances, verifies one, times all with the ceiling's probe between them.
// `in_cache` is the same entry of Extent::cache; null: that is not measured.
KernelResult run_entry(const Entry& entry, const Entry* in_cache, Context& context,
                       const KernelBenchOptions& options);

// The entries of bench/kernels/ that the options choose, in the order in which they run. Throws
// InvalidArgument for a filter that is no regular expression or finds nothing.
std::vector<Entry> chosen_entries(const KernelBenchOptions& options, const Device& device);

// Runs all benches. `on_result` sees each result as it comes.
KernelReport run_kernel_benches(Context& context, const KernelBenchOptions& options,
                                const std::function<void(const KernelResult&)>& on_result = {});

}  // namespace zinc::bench
