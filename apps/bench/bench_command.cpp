// zinc bench: the speed of kernels and training, beside the machine's limits.
#include "apps/bench/bench_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/hardware_file.h"
#include "apps/help/help_text.h"
#include "apps/machine.h"
#include "apps/swap_preflight.h"
#include "apps/tuning_options.h"
#include "bench/ceilings.h"
#include "bench/checkpoint_bench.h"
#include "bench/fit_bench.h"
#include "bench/generate_bench.h"
#include "bench/io_bench.h"
#include "bench/measure_hardware.h"
#include "bench/swap_bench.h"
#include "bench/train_bench.h"
#include "comm/world.h"
#include "core/context.h"
#include "core/cuda_backend.h"
#include "core/device_checks.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "core/launch_times.h"
#include "core/trace.h"
#include "files/atomic_file.h"
#include "hub/model_config.h"
#include "train/trace/trace_writer.h"

namespace zinc::apps {
namespace {

// Allowed excess of a chosen configuration's step over the best one.
constexpr double kMostOverBest = 1.15;

struct BenchArguments {
  bench::FitBenchOptions fit;
  bench::TrainBenchOptions train;
  bench::GenerateBenchOptions generate;
  TuningArguments tuning;
  bench::IoBenchOptions io;
  bench::SwapBenchOptions swap;
  bench::CheckpointBenchOptions checkpoint;
  int64_t file_mib = 256;
  bool no_fio = false;
  std::string device = "cpu";
  std::string dtype = "bf16";
  std::string json;
  std::string trace, kernel_times;
  std::string disk;
  std::vector<std::string> determinism{"run"};
  int threads = 0;
  bool paced = false;
  bool save = false;
};

DType float_dtype(const std::string& name) {
  const auto dtype = parse_dtype(name);
  if (!dtype || !is_float(*dtype)) {
    throw ConfigError(fmt::format("--dtype must be f32, bf16 or f16, not '{}'", name));
  }
  return *dtype;
}

std::string processor_of(const Device& device) {
  if (device.is_cpu()) return inspect_machine().cpu_model;
  return cuda_devices().at(static_cast<size_t>(device.index)).name;
}

// Ranks of one host measure together what each gets of it.
int bench_ceilings(const BenchArguments& options) {
  std::string path = options.json;
  if (options.save && path.empty()) path = own_hardware_path();
  if (options.save && path.empty()) {
    throw ConfigError("--save needs HOME, XDG_CONFIG_HOME or ZINC_HARDWARE; or give --json FILE");
  }
  comm::World world = comm::connect({.device = parse_device(options.device),
                                     .spread_devices = options.device == "cuda",
                                     .num_threads = options.threads});
  std::optional<plan::Disk> disk;  // first: a folder that cannot be used costs no measurement
  if (world.is_main() && !options.disk.empty()) {
    disk = probe_disk(options.disk, {.queue_depth = 32});
  }
  const auto ceilings = bench::measure_ceilings(world.context());
  if (world.is_main()) fmt::print("{}", bench::table_of(ceilings));
  if (path.empty()) return kDone;
  plan::Hardware hardware =
      bench::measure_hardware(world, ceilings, {.name = processor_of(world.context().device())});
  if (!world.is_main()) return kDone;
  hardware.disk = disk;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (options.save && !folder.empty()) std::filesystem::create_directories(folder);
  files::write_file_atomically(path, plan::json_of(hardware));
  fmt::print("\n{}written to {}\n", plan::json_of(hardware), path);
  return kDone;
}

int bench_fit(const BenchArguments& options) {
  const bench::FitBenchResult result = bench::run_fit_bench(
      options.fit, [](const std::string& at) { fmt::print(stderr, "{}\n", at); });
  fmt::print("{}{}", plan::json_of(result.hardware), bench::describe(result));
  const bool holds = result.holds(kMostOverBest);
  fmt::print("every choice within its limit and within {:.0f} % of the best: {}\n",
             100.0 * (kMostOverBest - 1.0), holds ? "yes" : "no");
  return kDone;
}

int bench_io(BenchArguments options) {
  options.io.file_bytes = options.file_mib << 20;
  options.io.fio = !options.no_fio;
  fmt::print("{}", bench::io_table_header());
  const bench::IoBenchReport report =
      bench::run_io_bench(options.io, [](const bench::IoBenchResult& result) {
        fmt::print("{}", bench::io_table_row(result));
        std::fflush(stdout);
      });
  fmt::print("\nhighest mixed rate:\n{}", bench::aio_section(report));
  return kDone;
}

int bench_swap(BenchArguments options) {
  options.swap.dtype = float_dtype(options.dtype);
  comm::World world = comm::connect({.num_threads = options.threads});
  const bench::SwapBenchResult result =
      bench::run_swap_bench(world, options.swap, [&](const std::string& name, double seconds) {
        if (world.is_main()) fmt::print("{:<16} step {:8.1f} ms\n", name, 1e3 * seconds);
        std::fflush(stdout);
      });
  if (world.is_main()) fmt::print("\n{}", bench::describe(result));
  return kDone;
}

int bench_checkpoint(BenchArguments options) {
  options.checkpoint.dtype = float_dtype(options.dtype);
  comm::World world = comm::connect({.num_threads = options.threads});
  const bench::CheckpointBenchResult result =
      bench::run_checkpoint_bench(world, options.checkpoint);
  if (!world.is_main()) return kDone;
  if (!options.json.empty()) {
    files::write_file_atomically(options.json, json_of(options.checkpoint, result));
  }
  const auto bytes = static_cast<double>(result.bytes);
  const auto row = [](const char* what, double seconds, const char* beside, double other) {
    fmt::print("{:<28} {:9.1f} ms   {:<28} {:9.1f} ms   {:5.2f}\n", what, 1e3 * seconds, beside,
               1e3 * other, seconds / other);
  };
  fmt::print("{:.1f} MiB of each rank\n", bytes / 1048576.0);
  row("pause, written beside", result.stall_seconds, "a copy of as many bytes",
      result.copy_seconds);
  row("write, waited for", result.write_seconds, "one plain file, synced", result.plain_seconds);
  row("open, verify, load", result.load_seconds, "one plain file, synced", result.plain_seconds);
  if (result.beside_seconds > 0.0) {
    row("a step beside a write", result.beside_seconds, "a step without", result.step_seconds);
  }
  return kDone;
}

// Another program takes turns with us: `zinc: ready` is the word that a line is awaited.
void wait_for_a_line() {
  fmt::print("zinc: ready\n");
  std::fflush(stdout);
  int c = std::getchar();
  while (c != EOF && c != '\n') c = std::getchar();
}

int bench_generate(BenchArguments options) {
  options.generate.dtype = float_dtype(options.dtype);
  require_device(parse_device(options.device), options.generate.dtype);
  comm::World world = comm::connect({.device = parse_device(options.device),
                                     .num_threads = options.threads,
                                     .execution = ContextOptions::Execution::inline_all});
  bench::GenerateBenchHooks hooks;
  if (options.paced) hooks.before_round = wait_for_a_line;
  hooks.after_round = [](const bench::WrittenTexts& texts) {
    fmt::print("batch {} prefill {:.1f} ms, decode {:.1f} ms\n", texts.batch,
               1e3 * texts.prefill_seconds.last(), 1e3 * texts.decode_seconds.last());
    std::fflush(stdout);
  };
  const bench::GenerateBenchResult result =
      bench::run_generate_bench(world, options.generate, hooks);
  fmt::print("\nstream, reads alone: {:.1f} GB/s; a token reads {:.1f} MB of weights\n",
             result.stream_bytes_per_second / 1e9, result.weight_bytes / 1e6);
  for (const bench::WrittenTexts& texts : result.batches) {
    fmt::print(
        "batch {}: prefill {:.1f} tokens/s, decode {:.1f} tokens/s, weights at {:.1f} GB/s, {:.0f} "
        "% of the stream\n",
        texts.batch, texts.prefill_tokens_per_second, texts.decode_tokens_per_second,
        texts.weight_bytes_per_second / 1e9, 100.0 * texts.stream_share);
  }
  if (!options.json.empty()) {
    files::write_file_atomically(options.json, bench::json_of(options.generate, result) + "\n");
  }
  return kDone;
}

int bench_train(BenchArguments options) {
  options.train.dtype = float_dtype(options.dtype);
  require_device(parse_device(options.device), options.train.dtype);
  options.train.tuning = tuning_of(
      options.tuning, hub::model_type(hub::find_model_config(options.train.preset).config));
  options.train.determinism.clear();
  for (const std::string& word : options.determinism) {
    for (const auto value :
         {zero::Determinism::run, zero::Determinism::world, zero::Determinism::mesh}) {
      if (word == zero::name_of(value)) options.train.determinism.push_back(value);
    }
  }
  TraceRecorder recorder;
  comm::ConnectOptions connect{.device = parse_device(options.device),
                               .spread_devices = options.device == "cuda",
                               .num_threads = options.threads};
  if (!options.trace.empty()) connect.trace = &recorder;
  comm::World world = comm::connect(connect);
  const bool speaks = world.is_main();
  bench::TrainBenchHooks hooks;
  std::optional<train::TraceWriter> trace;
  if (!options.trace.empty()) {
    trace.emplace(fmt::format("{}.rank{}", options.trace, world.rank()),
                  train::TraceWriterOptions{.rank = world.rank()});
    hooks.in_step = [&] { trace->drain(recorder); };
  }
  std::vector<KernelTime> last_step;
  auto& times = world.context().slot<LaunchTimes>();
  if (!options.kernel_times.empty()) {
    require(world.context().device().kind == DeviceKind::cuda,
            "--kernel-times needs --device cuda: on the CPU a trace has every kernel");
    times.turn_on();
  }
  hooks.before_step = [&] {
    if (speaks && options.paced) wait_for_a_line();
    times.take();
  };
  hooks.after_step = [&](const bench::StageSteps& steps, double seconds) {
    last_step = times.take();
    if (speaks) {
      fmt::print("stage {} step {:8.1f} ms, {}\n", steps.stage, 1e3 * seconds,
                 zero::name_of(steps.determinism));
    }
    std::fflush(stdout);
  };
  const bench::TrainBenchResult result = bench::run_train_bench(world, options.train, hooks);
  if (!speaks) return kDone;
  const bench::StageSteps& first = result.stages.front();
  for (const bench::StageSteps& stage : result.stages) {
    fmt::print("stage {} {} tokens_per_second {:.1f} ({:.3f} x stage {} {})\n", stage.stage,
               zero::name_of(stage.determinism), stage.tokens_per_second,
               stage.tokens_per_second / first.tokens_per_second, first.stage,
               zero::name_of(first.determinism));
  }
  if (!options.kernel_times.empty()) {
    files::write_file_atomically(options.kernel_times, csv_of(last_step));
  }
  fmt::print(
      "flops_per_token {:.4g} (6 x multiplied weights + 6 L H D T, causal)\nachieved {:.1f} "
      "GFLOP/s "
      "per rank\ngemm ceiling {:.1f} GFLOP/s\nratio {:.3f}\npeak {:.1f} MiB\n",
      result.flops_per_token, result.achieved_flops / 1e9, result.gemm_ceiling_flops / 1e9,
      result.ratio, static_cast<double>(result.peak_bytes) / 0x1p20);
  if (!options.json.empty()) {
    files::write_file_atomically(options.json, bench::json_of(options.train, result) + "\n");
  }
  return kDone;
}

}  // namespace

void add_bench_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchArguments>();
  CLI::App* verb = app.add_subcommand("bench", "Time kernels and training beside the machine");
  verb->require_subcommand(1);

  add_bench_kernels_command(*verb, action);
  add_bench_comm_command(*verb, action);

  CLI::App* ceilings = verb->add_subcommand("ceilings", "What this machine can do at best");
  ceilings->add_option("--device", options->device, "cpu (default), cuda or cuda:<i>");
  ceilings->add_option("--threads", options->threads, "0: all cores (default)");
  ceilings->add_option("--json", options->json, "Write a hardware file for zinc plan");
  ceilings->add_option("--disk", options->disk,
                       "A directory for swap files: its disk's speed goes into the hardware file");
  ceilings->add_flag("--save", options->save, "Write it where zinc plan looks for it");
  begin_help(*ceilings, {"--save", "--json", "--disk", "--device", "--threads"},
             "zinc bench ceilings --save", "docs/planning.md");
  ceilings->callback(
      [options, &action] { action = [options] { return bench_ceilings(*options); }; });

  CLI::App* fit = verb->add_subcommand(
      "fit", "What zinc plan --fit chooses, beside the fastest that fits, by runs");
  fit->add_option("--limits", options->fit.limits, "Of memory (default 12)")
      ->check(CLI::Range(1, 1000));
  fit->add_option("--rounds", options->fit.rounds, "In which every candidate runs (default 2)")
      ->check(CLI::Range(1, 1000));
  begin_help(*fit, {"--limits", "--rounds"}, "zinc bench fit", "docs/planning.md");
  fit->callback([options, &action] { action = [options] { return bench_fit(*options); }; });

  CLI::App* io = verb->add_subcommand("io", "Reads and writes of a directory's disk, beside fio");
  io->add_option("--path", options->io.directory, "A directory on the disk (default .)");
  io->add_option("--mib", options->file_mib, "Size of the file (default 256)")
      ->check(CLI::Range(1, 1 << 20));
  io->add_option("--repetitions", options->io.repetitions, "Per row (default 3)")
      ->check(CLI::Range(1, 1000));
  io->add_option("--block-sizes", options->io.block_sizes, "Bytes, as in 1048576,8388608")
      ->delimiter(',')
      ->check(CLI::Range(4096, 1 << 30));
  io->add_option("--queue-depths", options->io.queue_depths, "As in 8,32")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  io->add_option("--threads", options->io.threads, "As in 1,2")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  io->add_flag("--no-fio", options->no_fio, "Do not run fio");
  begin_help(*io, {"--path", "--mib"}, "zinc bench io --path /nvme", "docs/offload.md");
  put_into(*io, kOfMeasuring, {"--repetitions", "--no-fio"});
  put_into(*io, kOfDisk, {"--block-sizes", "--queue-depths", "--threads"});
  io->callback([options, &action] { action = [options] { return bench_io(*options); }; });

  CLI::App* checkpoint = verb->add_subcommand(
      "checkpoint", "What a checkpoint costs a run, beside what memory and disk do");
  checkpoint->add_option("--path", options->checkpoint.directory,
                         "A directory on the disk (default .)");
  checkpoint->add_option("--preset", options->checkpoint.preset, "Default gpt2-124m");
  checkpoint->add_option("--dtype", options->dtype, "f32, bf16 (default) or f16");
  checkpoint->add_option("--batch", options->checkpoint.batch, "Sequences (default 1)");
  checkpoint->add_option("--seq", options->checkpoint.seq, "Tokens of each (default 128)");
  checkpoint->add_option("--rounds", options->checkpoint.rounds, "Default 5")
      ->check(CLI::PositiveNumber);
  checkpoint->add_option("--threads", options->threads, "0: all cores (default)");
  checkpoint->add_option("--json", options->json, "Write the figures to a file");
  begin_help(*checkpoint, {"--path", "--preset", "--batch", "--seq", "--json"},
             "zinc bench checkpoint --path /scratch", "docs/checkpoints.md");
  put_into(*checkpoint, kOfMeasuring, {"--rounds"});
  put_into(*checkpoint, kOfMemory, {"--dtype"});
  put_into(*checkpoint, kOfRanks, {"--threads"});
  checkpoint->callback(
      [options, &action] { action = [options] { return bench_checkpoint(*options); }; });
  CLI::App* swap = verb->add_subcommand(
      "swap", "Training with parameters and states on NVMe, both schedules, beside memory");
  swap->add_option("--path", options->swap.directory, "A directory on the disk (default .)");
  swap->add_option("--preset", options->swap.preset, "Default: four blocks of GPT-2 1024 wide");
  swap->add_option("--dtype", options->dtype, "f32, bf16 (default) or f16");
  swap->add_option("--batch", options->swap.batch, "Sequences per micro-batch (default 1)");
  swap->add_option("--seq", options->swap.seq, "Tokens per sequence (default 8)");
  swap->add_option("--accumulation", options->swap.accumulation,
                   "Micro-batches per step (default 8)");
  swap->add_option("--steps", options->swap.steps, "Timed steps of each at most (default 7)")
      ->check(CLI::Range(1, 1000));
  swap->add_option("--limit", options->swap.limit_seconds,
                   "Seconds after which no further round of steps begins (default 40)");
  swap->add_option("--runs", options->swap.runs,
                   "Only these, as in horizontal,vertical (default all)")
      ->delimiter(',')
      ->check(CLI::IsMember(bench::swap_bench_runs()));
  swap->add_option("--block-size", options->swap.storage.block_size, "aio.block_size")
      ->check(CLI::Range(4096, 1 << 30));
  swap->add_option("--queue-depth", options->swap.storage.queue_depth, "aio.queue_depth")
      ->check(CLI::Range(1, 4096));
  swap->add_option("--io-threads", options->swap.storage.threads, "aio.intra_op_parallelism")
      ->check(CLI::Range(1, 64));
  swap->add_option("--threads", options->threads, "0: all cores (default)");
  begin_help(*swap, {"--path", "--preset", "--batch", "--seq", "--accumulation"},
             "zinc bench swap --path /nvme", "docs/offload.md");
  put_into(*swap, kOfMeasuring, {"--runs", "--steps", "--limit"});
  put_into(*swap, kOfMemory, {"--dtype"});
  put_into(*swap, kOfRanks, {"--threads"});
  put_into(*swap, kOfDisk, {"--block-size", "--queue-depth", "--io-threads"});
  swap->callback([options, &action] { action = [options] { return bench_swap(*options); }; });

  CLI::App* generate = verb->add_subcommand(
      "generate", "Prompts read and texts written, beside reading the weights");
  generate->add_option("--preset", options->generate.preset, "Default gpt2-124m");
  generate->add_option("--dtype", options->dtype, "f32, bf16 (default) or f16");
  generate->add_option("--device", options->device, "cpu (default), cuda or cuda:<i>");
  generate->add_option("--prompt-tokens", options->generate.prompt_tokens,
                       "Of each prompt (default 512)");
  generate->add_option("--tokens", options->generate.tokens, "New ones of each text (default 33)");
  generate
      ->add_option("--batch", options->generate.batch, "Texts side by side, in turn (default 1,8)")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  generate->add_option("--rounds", options->generate.rounds, "Timed rounds (default 5)");
  generate->add_flag("--paced", options->paced,
                     "Wait for a line on standard input before each batch");
  generate->add_option("--threads", options->threads, "0: all cores (default)");
  generate->add_option("--json", options->json, "Write the results to a file");
  begin_help(*generate, {"--preset", "--batch", "--prompt-tokens", "--tokens", "--dtype", "--json"},
             "zinc bench generate --preset llama-1b --batch 1,8", "docs/generation.md");
  put_into(*generate, kOfMeasuring, {"--rounds", "--paced"});
  put_into(*generate, kOfRanks, {"--device", "--threads"});
  generate->callback(
      [options, &action] { action = [options] { return bench_generate(*options); }; });

  CLI::App* train = verb->add_subcommand("train", "Training steps of a preset");
  train->add_option("--preset", options->train.preset, "Default gpt2-124m");
  train->add_option("--dtype", options->dtype, "f32, bf16 (default) or f16");
  train->add_option("--device", options->device, "cpu (default), cuda or cuda:<i>");
  train->add_option("--batch", options->train.batch, "Sequences (default 4)");
  train->add_option("--seq", options->train.seq, "Tokens per sequence (default 512)");
  train->add_option("--steps", options->train.steps, "Timed steps (default 5)");
  train->add_option("--recompute-every", options->train.recompute_every,
                    "Blocks per recomputed segment; 0: keep activations (default)");
  train->add_option("--accumulation", options->train.accumulation,
                    "Micro-batches per step (default 1)");
  add_tuning_options(*train, options->tuning);
  train
      ->add_option("--stages", options->train.stages,
                   "ZeRO stages whose steps take turns, as in 0,2,3 (default 0)")
      ->delimiter(',')
      ->check(CLI::Range(0, 3));
  train
      ->add_option("--determinism", options->determinism,
                   "run, world or mesh, or several: each stage once with each (default run)")
      ->delimiter(',')
      ->check(CLI::IsMember({"run", "world", "mesh"}));
  train->add_option("--trace", options->trace, "Write a trace to FILE.rank<r> while measuring");
  train->add_option("--kernel-times", options->kernel_times,
                    "On a GPU: write the time of each kernel of the last step to a CSV file, by "
                    "events around launches");
  train->add_flag("--paced", options->paced, "Wait for a line on standard input before each step");
  train->add_option("--threads", options->threads, "0: all cores (default)");
  train->add_option("--json", options->json, "Write the results to a file");
  begin_help(*train, {"--preset", "--batch", "--seq", "--stages", "--dtype", "--json"},
             "zinc bench train --preset gpt2-124m --stages 0,3", "docs/training.md");
  put_into(*train, kOfModel, {"--freeze", "--train", "--lora", "--adapter", "--quantize"});
  put_into(*train, kOfLength, {"--accumulation"});
  put_into(*train, kOfMeasuring, {"--steps", "--paced", "--trace", "--kernel-times"});
  put_into(*train, kOfMemory, {"--recompute-every"});
  put_into(*train, kOfRanks, {"--device", "--threads", "--determinism"});
  train->callback([options, &action] { action = [options] { return bench_train(*options); }; });

  const auto group = [verb](const char* name, std::initializer_list<const char*> verbs) {
    for (const char* one : verbs) verb->get_subcommand(one)->group(name);
  };
  group("Kernels", {"kernels"});
  group("This machine", {"ceilings", "io", "comm"});
  group("Runs", {"train", "generate", "checkpoint", "swap", "fit"});
}

}  // namespace zinc::apps
