// zinc bench kernels: the kernel lab. Lists the kernels, measures them beside the machine's limits,
// compares two runs, and places kernels under the roof.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/bench_command.h"
#include "apps/help/help_text.h"
#include "bench/kernel_bench.h"
#include "bench/kernel_compare.h"
#include "bench/kernel_report.h"
#include "bench/roofline.h"
#include "core/context.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/atomic_file.h"

namespace zinc::apps {
namespace {

struct BenchKernelsArguments {
  bench::KernelBenchOptions run;
  std::string device = "cpu";
  std::string preset = "gpt2-124m";
  std::vector<std::string> dtypes;
  std::string cache = "cold";
  std::string verify = "ref";
  std::string arrays;
  std::string json, csv, markdown;
  std::string shape, timer = "event", imported;
  std::vector<std::string> sweeps;
  bool without_baseline = false;
  int threads = 0;
  bool warm = false;
  // compare and roofline
  std::string before, after, svg;
  bench::CompareOptions compare;
  double peak_gb_per_s = 0.0, peak_tflop_per_s = 0.0;
};

Device prepare(BenchKernelsArguments& options) {
  const Device device = parse_device(options.device);
  options.run.model = bench::shape_of_preset(options.preset);
  options.run.cold = !options.warm && options.cache == "cold";
  options.run.verify = options.verify == "ref";
  if (options.arrays == "small") options.run.extent = bench::Extent::cache;
  if (!options.shape.empty() || !options.sweeps.empty()) {
    options.run.shapes = bench::free_shapes(options.shape, options.sweeps);
  }
  if (options.timer == "graph") options.run.timer = bench::KernelTimer::graph;
  if (!options.imported.empty()) options.run.imported = bench::read_baselines(options.imported);
  options.run.baseline = !options.without_baseline;
  for (const std::string& name : options.dtypes) {
    const auto dtype = parse_dtype(name);
    if (!dtype || !is_float(*dtype)) {
      throw ConfigError(fmt::format("--dtype must name f32, bf16 or f16, not '{}'", name));
    }
    options.run.dtypes.push_back(*dtype);
  }
  return device;
}

int list(BenchKernelsArguments options) {
  const Device device = prepare(options);
  for (const bench::Entry& entry : bench::chosen_entries(options.run, device)) {
    fmt::print("{} {} {} {}\n", entry.op, entry.pass, to_string(entry.dtype), entry.shape);
  }
  return kDone;
}

void write_if_named(const std::string& path, const std::string& text) {
  if (!path.empty()) files::write_file_atomically(path, text);
}

// The reasons why baselines are missing, each once.
std::vector<std::string> missing_baselines(const bench::KernelReport& report) {
  std::vector<std::string> lines;
  for (const bench::KernelResult& r : report.results) {
    const bool is_new = std::find(lines.begin(), lines.end(), r.baseline_missing) == lines.end();
    if (!r.baseline_missing.empty() && is_new) lines.push_back(r.baseline_missing);
  }
  return lines;
}

int run(BenchKernelsArguments options) {
  const Device device = prepare(options);
  Context context({.device = device, .num_threads = options.threads});
  const ContextScope scope(context);
  fmt::print("{}", bench::table_header());
  const bench::KernelReport report =
      bench::run_kernel_benches(context, options.run, [](const bench::KernelResult& result) {
        fmt::print("{}", bench::table_row(result));
        std::fflush(stdout);
      });
  for (const std::string& line : missing_baselines(report)) fmt::print("{}\n", line);
  write_if_named(options.json, bench::json_of(report));
  write_if_named(options.csv, bench::csv_of(report));
  write_if_named(options.markdown, bench::markdown_of(report));
  if (report.all_verified()) return kDone;
  fmt::print(stderr, "zinc: a kernel deviates from its f64 path\n");
  return kInternal;
}

int compare(const BenchKernelsArguments& options) {
  const auto comparisons =
      bench::compare(bench::read_kernel_report(options.before),
                     bench::read_kernel_report(options.after), options.compare);
  fmt::print("{}", bench::table_of(comparisons));
  if (!bench::has_regression(comparisons)) return kDone;
  fmt::print(stderr, "zinc: a kernel is slower than it was, or deviates now\n");
  return kRegression;
}

int draw_roofline(const BenchKernelsArguments& options) {
  const bench::KernelReport report = bench::read_kernel_report(options.before);
  const bench::Roof roof =
      bench::roof_of(report, options.peak_gb_per_s, 1e3 * options.peak_tflop_per_s);
  fmt::print("{}", bench::roofline_text(report, roof));
  write_if_named(options.svg, bench::roofline_svg(report, roof));
  return kDone;
}

void add_choice(CLI::App& verb, BenchKernelsArguments& options) {
  verb.add_option("--filter", options.run.filter, "Regular expression on \"op pass dtype shape\"");
  verb.add_option("--device", options.device, "cpu (default), cuda or cuda:<i>");
  verb.add_option("--preset", options.preset,
                  "Shapes of gpt2-124m (default), gpt2-1.5b, llama-1b or llama-8b");
  verb.add_option("--dtype", options.dtypes, "As in bf16,f32; all by default")->delimiter(',');
  verb.add_option("--pass", options.run.passes, "As in forward,backward; all by default")
      ->delimiter(',');
  verb.add_option(
      "--shape", options.shape,
      "Instead of the preset's, as in rows=8192,cols=4096 or B=4,T=2048,H=32,G=8,D=128; "
      "entries without these extents are left out");
  verb.add_option("--sweep", options.sweeps,
                  "One extent over a range, as in cols=1024:16384:x2 or T=512:2048:+512; may be "
                  "given again")
      ->allow_extra_args(false);
  verb.add_option("--arrays", options.arrays,
                  "small: a few rows, to see that a kernel is right; default: beyond the caches")
      ->check(CLI::IsMember({"small"}));
}

void add_run_options(CLI::App& verb, BenchKernelsArguments& options) {
  add_choice(verb, options);
  verb.add_option("--cache", options.cache,
                  "cold (default): no run finds its data in a cache; warm")
      ->check(CLI::IsMember({"cold", "warm"}));
  verb.add_flag("--warm", options.warm, "The same as --cache warm");
  verb.add_option("--verify", options.verify, "ref (default): against the f64 path; off")
      ->check(CLI::IsMember({"ref", "off"}));
  verb.add_option("--seconds,--min-time", options.run.min_seconds, "Per kernel (default 0.3)");
  verb.add_option("--max-noise", options.run.max_noise,
                  "Go on until the noise is this share at most, as in 0.005 (default: do not)");
  verb.add_option("--samples", options.run.min_samples, "At least (default 5)")
      ->check(CLI::Range(1, 1000));
  verb.add_option("--threads", options.threads, "0: all cores (default)");
  verb.add_option("--timer", options.timer,
                  "On a GPU: event (default), or graph: a CUDA graph of the runs of a sample")
      ->check(CLI::IsMember({"event", "graph"}));
  verb.add_option("--import", options.imported,
                  "CSV of others' figures to compare with: op,pass,dtype,shape,median_us[,name]");
  verb.add_flag("--no-baseline", options.without_baseline,
                "Do not time what others have for the same (cuDNN's attention)");
  verb.add_option("--json", options.json, "Write the results to a file");
  verb.add_option("--csv", options.csv, "The same, a line per kernel");
  verb.add_option("--md", options.markdown, "The same, a table in Markdown");
  begin_help(verb, {"--filter", "--dtype", "--pass", "--preset", "--device", "--json"},
             "zinc bench kernels --filter '^(gelu|layernorm)' --dtype bf16", "docs/kernels.md");
  put_into(verb, kOfData, {"--shape", "--sweep", "--arrays", "--cache", "--warm"});
  put_into(verb, kOfMeasuring,
           {"--verify", "--seconds", "--max-noise", "--samples", "--timer", "--import",
            "--no-baseline"});
  put_into(verb, kOfRanks, {"--threads"});
  put_into(verb, kOfFiles, {"--csv", "--md"});
}

}  // namespace

void add_bench_kernels_command(CLI::App& bench_verb, Action& action) {
  auto options = std::make_shared<BenchKernelsArguments>();
  CLI::App* kernels = bench_verb.add_subcommand("kernels", "Verify and time every kernel");
  kernels->require_subcommand(0, 1);
  add_run_options(*kernels, *options);
  kernels->callback([options, kernels, &action] {
    if (kernels->get_subcommands().empty()) action = [options] { return run(*options); };
  });

  CLI::App* run_verb = kernels->add_subcommand("run", "Verify and time them (the default)");
  add_run_options(*run_verb, *options);
  run_verb->callback([options, &action] { action = [options] { return run(*options); }; });

  CLI::App* list_verb = kernels->add_subcommand("list", "Which there are");
  add_choice(*list_verb, *options);
  list_verb->callback([options, &action] { action = [options] { return list(*options); }; });

  CLI::App* compare_verb =
      kernels->add_subcommand("compare", "Two runs; exit code 1 where one is slower or wrong now");
  compare_verb->add_option("before", options->before, "JSON of a run")->required();
  compare_verb->add_option("after", options->after, "JSON of a later one")->required();
  compare_verb->add_option("--smallest", options->compare.smallest_percent,
                           "Changes below so many percent do not count (default 3)");
  compare_verb->add_flag("--by-ceiling", options->compare.by_ceiling,
                         "Compare shares of the ceiling instead of times");
  compare_verb->callback([options, &action] { action = [options] { return compare(*options); }; });

  CLI::App* roofline = kernels->add_subcommand("roofline", "A run under its roof");
  roofline->add_option("run", options->before, "JSON of a run")->required();
  roofline->add_option("--svg", options->svg, "Write a drawing too");
  roofline->add_option("--peak-gbps", options->peak_gb_per_s, "Instead of what was measured");
  roofline->add_option("--peak-tflops", options->peak_tflop_per_s, "Instead of what was measured");
  roofline->callback(
      [options, &action] { action = [options] { return draw_roofline(*options); }; });
}

}  // namespace zinc::apps
