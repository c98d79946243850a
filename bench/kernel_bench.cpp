#include "bench/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <regex>

#include "bench/arrays.h"
#include "bench/ceilings.h"
#include "bench/device_clock.h"
#include "bench/kernels/all.h"
#include "bench/samples.h"
#include "core/build_info.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "kernels/cpu/block_product.h"

namespace zinc::bench {
namespace {

constexpr int64_t kMaxInstances = 16;
constexpr double kMaxInstanceBytes = 4e9;  // of all instances together
// On a GPU a sample has enough runs to last this long, so that it is far longer than the resolution
// of events, and launches are hidden behind the runs before.
constexpr double kDeviceSampleSeconds = 5e-4;
constexpr int kMaxRunsPerSample = 64;

// Enough to go through twice the caches before an instance comes again.
int64_t num_instances(const Entry& entry, const Device& device, bool cold) {
  if (!cold) return 1;
  const double each = static_cast<double>(entry.cost.bytes()) + entry.scratch_bytes;
  const double wanted = 2.0 * static_cast<double>(last_level_cache_bytes(device)) / each + 1.0;
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

const CudaDeviceInfo* info_of(const std::vector<CudaDeviceInfo>& gpus, const Device& device) {
  const auto index = static_cast<size_t>(device.index);
  return device.is_cuda() && index < gpus.size() ? &gpus[index] : nullptr;
}

// nvidia-smi's output, on one line; "" without nvidia-smi.
std::string clocks_of(const Device& device) {
  if (!device.is_cuda()) return "";
  const std::string command =
      str("nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu "
          "--format=csv,noheader -i ",
          device.index, " 2>/dev/null");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char line[256] = "";
  if (pipe == nullptr || std::fgets(line, sizeof line, pipe.get()) == nullptr) return "";
  std::string text = line;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

BenchedMachine machine_of(Context& context) {
  const std::vector<CudaDeviceInfo> gpus = cuda_devices();
  const CudaDeviceInfo* gpu = info_of(gpus, context.device());
  const BuildInfo build = build_info();
  BenchedMachine machine{
      .cpu = cpu_model(),
      .threads = context.num_threads(),
      .library = gpu != nullptr ? "cuBLASLt" : kernels::cpu::block_product_library(),
      .versions = str("zinc ", build.version, " (", build.git_revision, "), ", build.compiler)};
  if (gpu != nullptr) {
    machine.gpu = gpu->name;
    machine.versions += str(", CUDA ", cuda_versions());
  }
  return machine;
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

Deviation verify(const Instance& instance, Context& context) {
  instance.run();
  context.synchronize();
  if (context.device().is_cpu()) return instance.verify();
  Context oracle({.num_threads = context.num_threads()});
  oracle.slot<BenchedGpu>().context = &context;
  const ContextScope scope(oracle);
  return instance.verify();
}

struct Times {
  Samples seconds;   // of a run
  Samples ceilings;  // work per second of the probe
  Samples ratios;
  int runs_per_sample = 1;
  std::vector<CudaKernelUse> kernels;
};

Times measure(const std::vector<Instance>& instances, Probe* probe, double work, Context& context,
              const KernelBenchOptions& options) {
  Times times;
  DeviceClock clock(context);
  size_t next = 0, turns = 1;
  std::unique_ptr<CudaGraph> graph;
  const auto run_each = [&] {
    for (size_t i = 0; i < turns; ++i) instances[next++ % instances.size()].run();
  };
  const auto run = [&] { graph != nullptr ? graph->launch(context.compute()) : run_each(); };
  turns = instances.size();
  clock.seconds_of(run);
  if (clock.counts_on_device()) {
    const double each = clock.seconds_of(run) / static_cast<double>(turns);
    times.runs_per_sample = static_cast<int>(
        std::clamp(kDeviceSampleSeconds / std::max(each, 1e-9), 1.0, double{kMaxRunsPerSample}));
  }
  if (options.timer == KernelTimer::graph) {
    require(clock.counts_on_device(), "bench: a CUDA graph needs a GPU: --device cuda");
    // Whole rounds, so that a graph that is launched again finds cold arrays too.
    const auto sets = static_cast<int>(instances.size());
    times.runs_per_sample = (times.runs_per_sample + sets - 1) / sets * sets;
  }
  turns = static_cast<size_t>(times.runs_per_sample);
  if (options.timer == KernelTimer::graph) {
    graph = record_cuda_graph(context.compute(), run_each);
    times.kernels = graph->kernels();
    clock.seconds_of(run);
  }
  const auto per_run = [&](double seconds) { return seconds / times.runs_per_sample; };
  const auto run_probe = [&] {
    for (size_t i = 0; i < turns; ++i) probe->run();
  };
  if (probe != nullptr) clock.seconds_of(run_probe);
  double total = 0.0;
  while (static_cast<int>(times.seconds.count()) < options.max_samples) {
    const bool enough = total >= options.min_seconds &&
                        static_cast<int>(times.seconds.count()) >= options.min_samples;
    // Noise that does not fall is the machine's own: ten times as long is all it gets.
    const bool quiet = options.max_noise <= 0.0 || times.seconds.noise() <= options.max_noise ||
                       total >= 10 * options.min_seconds;
    if (enough && quiet) break;
    times.seconds.add(per_run(clock.seconds_of(run)));
    total += times.seconds.last() * times.runs_per_sample;
    if (probe == nullptr) continue;
    times.ceilings.add(probe->work_per_run() / per_run(clock.seconds_of(run_probe)));
    times.ratios.add(work / times.seconds.last() / times.ceilings.last());
  }
  return times;
}

// Compares with the entry's own baseline and the imported ones; the fastest counts.
void compare_with_others(const Entry& entry, Context& context, const KernelBenchOptions& options,
                         KernelResult& result) {
  if (const auto found = options.imported.find(result.name()); found != options.imported.end()) {
    result.baseline = found->second.name;
    result.baseline_us = found->second.median_us;
  }
  if (options.baseline && entry.make_baseline && context.device().is_cuda()) {
    try {
      std::vector<Instance> instances;
      for (int64_t i = 0; i < num_instances(entry, context.device(), options.cold); ++i) {
        instances.push_back(entry.make_baseline(context));
      }
      const Times times = measure(instances, nullptr, 0.0, context, options);
      const double median_us = times.seconds.median() * 1e6;
      if (result.baseline_us == 0.0 || median_us < result.baseline_us) {
        result.baseline = entry.baseline;
        result.baseline_us = median_us;
      }
    } catch (const CudaError& error) {
      result.baseline_missing = str(entry.baseline, ": ", error.what());
    }
  }
  if (result.baseline_us > 0.0) result.speed_to_baseline = result.baseline_us / result.median_us;
}

}  // namespace

bool KernelReport::all_verified() const {
  return std::all_of(results.begin(), results.end(),
                     [](const KernelResult& r) { return r.verified(); });
}

KernelResult run_entry(const Entry& entry, const Entry* in_cache, Context& context,
                       const KernelBenchOptions& options) {
  const ContextScope scope(context);
  KernelResult result{.op = entry.op,
                      .pass = entry.pass,
                      .dtype = to_string(entry.dtype),
                      .shape = entry.shape,
                      .device = to_string(context.device()),
                      .cold = options.cold,
                      .bytes = entry.cost.bytes(),
                      .flops = entry.cost.flops,
                      .was_verified = options.verify};
  std::vector<Instance> instances;
  for (int64_t i = 0; i < num_instances(entry, context.device(), options.cold); ++i) {
    instances.push_back(entry.make(context));
  }
  if (options.verify) result.deviation = verify(instances.front(), context);
  const auto probe = make_probe(entry);
  const double work = entry.ceiling.kind == Ceiling::Kind::gemm
                          ? static_cast<double>(entry.cost.flops)
                          : static_cast<double>(entry.cost.bytes());
  const Times times = measure(instances, probe.get(), work, context, options);
  const double median = times.seconds.median();
  result.samples = static_cast<int>(times.seconds.count());
  result.runs_per_sample = times.runs_per_sample;
  result.median_us = median * 1e6;
  result.mean_us = times.seconds.total_seconds() / result.samples * 1e6;
  result.p95_us = times.seconds.quantile(0.95) * 1e6;
  result.min_us = times.seconds.minimum() * 1e6;
  result.noise_percent = times.seconds.noise() * 100.0;
  result.gb_per_s = static_cast<double>(result.bytes) / median * 1e-9;
  result.gflop_per_s = static_cast<double>(result.flops) / median * 1e-9;
  if (probe != nullptr) {
    result.ceiling = name_of(entry.ceiling.kind);
    result.ceiling_value = times.ceilings.median() * 1e-9;
    result.percent_of_ceiling = times.ratios.median() * 100.0;
  }
  const bool counts_on_device = context.device().is_cuda();
  result.timer = options.timer == KernelTimer::graph ? "graph"
                 : counts_on_device                  ? "events"
                                                     : "host";
  for (const CudaKernelUse& kernel : times.kernels) {
    result.registers = std::max(result.registers, kernel.registers);
    result.spilled_bytes = std::max(result.spilled_bytes, kernel.spilled_bytes);
  }
  compare_with_others(entry, context, options, result);
  const std::vector<CudaDeviceInfo> gpus = cuda_devices();
  if (const CudaDeviceInfo* gpu = info_of(gpus, context.device())) {
    const double spec = gpu->spec_bandwidth();
    if (spec > 0.0) result.percent_of_spec = 1e11 * result.gb_per_s / spec;
  }
  if (entry.ceiling.kind == Ceiling::Kind::stream && in_cache != nullptr) {
    result.in_cache_gb_per_s = one_thread_gb_per_s(*in_cache) * context.num_threads();
    const double bound = std::min(result.ceiling_value, result.in_cache_gb_per_s);
    result.percent_of_bound = 100.0 * result.gb_per_s / bound;
  }
  return result;
}

namespace {

Extent extent_of(const KernelBenchOptions& options, const Device& device) {
  return options.extent.value_or(device.is_cuda() ? Extent::gpu : Extent::memory);
}

bool is_chosen(const Entry& entry, const KernelBenchOptions& options, const std::regex& filter) {
  const auto holds = [](const auto& wanted, const auto& value) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
  };
  return holds(options.dtypes, entry.dtype) && holds(options.passes, entry.pass) &&
         std::regex_search(
             str(entry.op, " ", entry.pass, " ", to_string(entry.dtype), " ", entry.shape), filter);
}

std::regex regex_of(const std::string& filter) {
  try {
    return std::regex(filter);
  } catch (const std::regex_error& error) {
    throw InvalidArgument(
        str("bench: the filter \"", filter, "\" is no regular expression: ", error.what()));
  }
}

}  // namespace

std::vector<Entry> chosen_entries(const KernelBenchOptions& options, const Device& device) {
  const std::regex filter = regex_of(options.filter);
  std::vector<Entry> chosen;
  const std::vector<FreeShape> of_the_model(1);
  for (const FreeShape& shape : options.shapes.empty() ? of_the_model : options.shapes) {
    const Registry registry = kernel_benches(extent_of(options, device), options.model, shape);
    for (const Entry& entry : registry.entries()) {
      if (has_extents(entry.shape, shape) && is_chosen(entry, options, filter)) {
        chosen.push_back(entry);
      }
    }
  }
  require(!chosen.empty(), "bench: no entry matches the filter \"", options.filter, "\"",
          options.shapes.empty() ? "" : " and has the extents that --shape and --sweep name");
  return chosen;
}

KernelReport run_kernel_benches(Context& context, const KernelBenchOptions& options,
                                const std::function<void(const KernelResult&)>& on_result) {
  KernelReport report{.machine = machine_of(context), .preset = options.model.name};
  const std::string before = clocks_of(context.device());
  const std::vector<Entry> entries = chosen_entries(options, context.device());
  std::vector<Entry> in_cache;
  if (context.device().is_cpu() && options.shapes.empty()) {
    // The same entries in the same order: shapes differ, so the filter cannot choose them.
    const Registry all = kernel_benches(extent_of(options, context.device()), options.model);
    const Registry small = kernel_benches(Extent::cache, options.model);
    const std::regex filter = regex_of(options.filter);
    for (size_t i = 0; i < all.entries().size(); ++i) {
      if (is_chosen(all.entries()[i], options, filter)) in_cache.push_back(small.entries()[i]);
    }
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    report.results.push_back(
        run_entry(entries[i], in_cache.empty() ? nullptr : &in_cache[i], context, options));
    context.synchronize();
    if (on_result) on_result(report.results.back());
  }
  const std::string after = clocks_of(context.device());
  if (!before.empty()) report.machine.clocks = str(before, " before; ", after, " after");
  return report;
}

}  // namespace zinc::bench
