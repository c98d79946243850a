#include "bench/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>

#include "bench/ceilings.h"
#include "bench/kernels/all.h"
#include "bench/samples.h"
#include "core/error.h"
#include "kernels/cpu/block_product.h"

namespace zinc::bench {
namespace {

constexpr int64_t kMaxInstances = 16;
constexpr double kMaxInstanceBytes = 4e9;  // of all instances together

// Enough to go through twice the caches before an instance comes again.
int64_t num_instances(const Entry& entry, bool cold) {
  if (!cold) return 1;
  const double each = static_cast<double>(entry.cost.bytes()) + entry.scratch_bytes;
  const double wanted = 2.0 * static_cast<double>(last_level_cache_bytes()) / each + 1.0;
  const double allowed = std::max(1.0, kMaxInstanceBytes / each);
  return std::clamp<int64_t>(static_cast<int64_t>(std::min(wanted, allowed)), 1, kMaxInstances);
}

std::string name_of(Ceiling::Kind kind) {
  switch (kind) {
    case Ceiling::Kind::stream:
      return "stream";
    case Ceiling::Kind::gemm:
      return "gemm";
    case Ceiling::Kind::none:
      break;
  }
  return "";
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(':') + 2, line.size()));
  }
  return "unknown";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

std::string json_row(const KernelResult& r) {
  const auto number = [](double value) {
    return std::isfinite(value) ? concat(value) : std::string("null");
  };
  return fmt::format(
      R"({{"op": "{}", "pass": "{}", "dtype": "{}", "shape": "{}", "samples": {}, )"
      R"("median_us": {}, "p95_us": {}, "min_us": {}, "noise_percent": {}, "bytes": {}, )"
      R"("flops": {}, "gb_per_s": {}, "gflop_per_s": {}, "ceiling": "{}", "ceiling_value": {}, )"
      R"("percent_of_ceiling": {}, "in_cache_gb_per_s": {}, "percent_of_bound": {}, "relative_error": {}, "tolerance": {}, "verified": {}}})",
      escaped(r.op), escaped(r.pass), r.dtype, escaped(r.shape), r.samples, number(r.median_us),
      number(r.p95_us), number(r.min_us), number(r.noise_percent), r.bytes, r.flops,
      number(r.gb_per_s), number(r.gflop_per_s), r.ceiling, number(r.ceiling_value),
      number(r.percent_of_ceiling), number(r.in_cache_gb_per_s), number(r.percent_of_bound),
      number(r.deviation.relative_l2), number(r.deviation.tolerance), r.verified());
}

// GB/s of an entry whose arrays stay in the cache, on one thread.
double one_thread_gb_per_s(const Entry& entry) {
  constexpr int kRunsPerSample = 8;
  constexpr double kSeconds = 0.02;
  Context alone({.num_threads = 1});
  const ContextScope scope(alone);
  const Instance instance = entry.make(alone);
  const auto several = [&] {
    for (int i = 0; i < kRunsPerSample; ++i) instance.run();
  };
  several();
  Samples times;
  while (times.total_seconds() < kSeconds) times.add(seconds_of(several));
  return static_cast<double>(entry.cost.bytes()) * kRunsPerSample / times.median() * 1e-9;
}

}  // namespace

bool KernelReport::all_verified() const {
  return std::all_of(results.begin(), results.end(),
                     [](const KernelResult& r) { return r.verified(); });
}

KernelResult run_entry(const Entry& entry, const Entry& in_cache, Context& context,
                       const KernelBenchOptions& options) {
  const ContextScope scope(context);
  KernelResult result{.op = entry.op,
                      .pass = entry.pass,
                      .dtype = to_string(entry.dtype),
                      .shape = entry.shape,
                      .bytes = entry.cost.bytes(),
                      .flops = entry.cost.flops};
  std::vector<Instance> instances;
  for (int64_t i = 0; i < num_instances(entry, options.cold); ++i) {
    instances.push_back(entry.make(context));
  }
  instances.front().run();
  result.deviation = instances.front().verify();
  const auto probe = make_probe(entry);
  const double work = entry.ceiling.kind == Ceiling::Kind::gemm
                          ? static_cast<double>(entry.cost.flops)
                          : static_cast<double>(entry.cost.bytes());
  for (const Instance& instance : instances) instance.run();
  if (probe != nullptr) probe->run();
  Samples times, ceilings, ratios;
  for (size_t i = 0; static_cast<int>(times.count()) < options.max_samples; ++i) {
    const bool enough = times.total_seconds() >= options.min_seconds &&
                        static_cast<int>(times.count()) >= options.min_samples;
    if (enough) break;
    times.add(seconds_of(instances[i % instances.size()].run));
    const double rate = work / times.last();
    if (probe == nullptr) continue;
    ceilings.add(probe->work_per_run() / seconds_of([&] { probe->run(); }));
    ratios.add(rate / ceilings.last());
  }
  result.samples = static_cast<int>(times.count());
  result.median_us = times.median() * 1e6;
  result.p95_us = times.quantile(0.95) * 1e6;
  result.min_us = times.minimum() * 1e6;
  result.noise_percent = times.noise() * 100.0;
  result.gb_per_s = static_cast<double>(result.bytes) / times.median() * 1e-9;
  result.gflop_per_s = static_cast<double>(result.flops) / times.median() * 1e-9;
  if (probe != nullptr) {
    result.ceiling = name_of(entry.ceiling.kind);
    result.ceiling_value = ceilings.median() * 1e-9;
    result.percent_of_ceiling = ratios.median() * 100.0;
  }
  if (entry.ceiling.kind == Ceiling::Kind::stream) {
    result.in_cache_gb_per_s = one_thread_gb_per_s(in_cache) * context.num_threads();
    const double bound = std::min(result.ceiling_value, result.in_cache_gb_per_s);
    result.percent_of_bound = 100.0 * result.gb_per_s / bound;
  }
  return result;
}

KernelReport run_kernel_benches(Context& context, const KernelBenchOptions& options,
                                const std::function<void(const KernelResult&)>& on_result) {
  KernelReport report{.cpu = cpu_model(),
                      .threads = context.num_threads(),
                      .library = kernels::cpu::block_product_library()};
  std::regex filter;
  try {
    filter = std::regex(options.filter);
  } catch (const std::regex_error& error) {
    require(false, "bench: the filter \"", options.filter,
            "\" is no regular expression: ", error.what());
  }
  const Registry registry = kernel_benches(Extent::memory);
  const Registry in_cache = kernel_benches(Extent::cache);
  for (size_t i = 0; i < registry.entries().size(); ++i) {
    const Entry& entry = registry.entries()[i];
    const std::string name =
        concat(entry.op, " ", entry.pass, " ", to_string(entry.dtype), " ", entry.shape);
    if (!std::regex_search(name, filter)) continue;
    report.results.push_back(run_entry(entry, in_cache.entries()[i], context, options));
    if (on_result) on_result(report.results.back());
  }
  require(!report.results.empty(), "bench: no entry matches the filter \"", options.filter, "\"");
  return report;
}

std::string table_header() {
  return fmt::format(
      "{:<26} {:<17} {:<5} {:<34} {:>10} {:>10} {:>6} {:>8} {:>9} {:>16} {:>6} {:>8} {:>7}  {}\n",
      "op", "pass", "dtype", "shape", "median us", "p95 us", "noise", "GB/s", "GFLOP/s", "ceiling",
      "%", "in cache", "% bound", "check");
}

std::string table_row(const KernelResult& r) {
  const std::string ceiling =
      r.ceiling.empty() ? "-" : fmt::format("{} {:.1f}", r.ceiling, r.ceiling_value);
  const std::string percent = r.ceiling.empty() ? "-" : fmt::format("{:.0f}", r.percent_of_ceiling);
  const bool streams = r.in_cache_gb_per_s > 0.0;
  return fmt::format(
      "{:<26} {:<17} {:<5} {:<34} {:>10.1f} {:>10.1f} {:>5.1f}% {:>8.1f} {:>9.1f} {:>16} {:>6} "
      "{:>8} {:>7}  "
      "{}\n",
      r.op, r.pass, r.dtype, r.shape, r.median_us, r.p95_us, r.noise_percent, r.gb_per_s,
      r.gflop_per_s, ceiling, percent, streams ? fmt::format("{:.1f}", r.in_cache_gb_per_s) : "-",
      streams ? fmt::format("{:.0f}", r.percent_of_bound) : "-",
      r.verified()
          ? fmt::format("ok {:.1e}", r.deviation.relative_l2)
          : fmt::format("WRONG {:.1e} > {:.1e}", r.deviation.relative_l2, r.deviation.tolerance));
}

std::string json_of(const KernelReport& report) {
  std::string out =
      fmt::format("{{\"cpu\": \"{}\", \"threads\": {}, \"gemm_library\": \"{}\",\n \"results\": [",
                  escaped(report.cpu), report.threads, escaped(report.library));
  for (size_t i = 0; i < report.results.size(); ++i) {
    out += i == 0 ? "\n  " : ",\n  ";
    out += json_row(report.results[i]);
  }
  return out + "\n]}\n";
}

}  // namespace zinc::bench
