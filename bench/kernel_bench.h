// bench/kernel_bench.h: verifies and times registered kernels; `zinc bench kernels` and
// zinc_bench_kernels call it. Nothing here prints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/registry.h"
#include "core/context.h"

namespace zinc::bench {

struct KernelBenchOptions {
  std::string filter;        // ECMAScript regular expression searched in "op pass dtype shape"
  double min_seconds = 0.3;  // of kernel time per entry
  int min_samples = 5;
  int max_samples = 1000;
  bool cold = true;  // go round enough instances to fill the caches twice
};

struct KernelResult {
  std::string op, pass, dtype, shape;
  int samples = 0;
  double median_us = 0.0, p95_us = 0.0, min_us = 0.0;
  double noise_percent = 0.0;  // half the interquartile range over the median
  int64_t bytes = 0, flops = 0;
  double gb_per_s = 0.0, gflop_per_s = 0.0;  // at the median
  std::string ceiling;                       // "stream", "gemm" or ""
  double ceiling_value = 0.0;       // GB/s or GFLOP/s, median of the probe run between the samples
  double percent_of_ceiling = 0.0;  // median over pairs of neighbouring samples
  // Memory-bound ops: GB/s of one thread on arrays that lie in its cache, times the threads. What
  // arithmetic alone allows; where it is below the stream ceiling, arithmetic is the bound.
  double in_cache_gb_per_s = 0.0;
  double percent_of_bound = 0.0;  // of the lower of ceiling_value and in_cache_gb_per_s
  Deviation deviation;
  bool verified() const { return deviation.ok(); }
};

struct KernelReport {
  std::string cpu;  // model name
  int threads = 0;
  std::string library;  // of the GEMM door
  std::vector<KernelResult> results;
  bool all_verified() const;
};

// One entry: makes instances, verifies one, times all with the ceiling's probe between them.
// `in_cache` is the same entry of Extent::cache.
KernelResult run_entry(const Entry& entry, const Entry& in_cache, Context& context,
                       const KernelBenchOptions& options);

// All entries of bench/kernels/ that the filter finds. `on_result` sees each as it comes. Throws
// InvalidArgument for a filter that is no regular expression or finds nothing.
KernelReport run_kernel_benches(Context& context, const KernelBenchOptions& options,
                                const std::function<void(const KernelResult&)>& on_result = {});

std::string table_header();
std::string table_row(const KernelResult& result);
std::string json_of(const KernelReport& report);

}  // namespace zinc::bench
