// zinc plan: the memory and the time of a run, before it runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "apps/command.h"
#include "apps/fit_arguments.h"
#include "apps/hardware_file.h"
#include "apps/help/help_text.h"
#include "apps/machine.h"
#include "apps/plan_verdict.h"
#include "apps/run_forecast.h"
#include "apps/tuning_options.h"
#include "core/error.h"
#include "core/exit_codes.h"
#include "files/atomic_file.h"
#include "files/json/parser.h"
#include "plan/computing_plan.h"
#include "plan/estimator.h"
#include "plan/plan.h"

namespace zinc::apps {
namespace {

struct PlanArguments {
  std::string config;
  std::string model;
  std::string device = "cpu";
  std::string comm = "auto";
  std::string dtype;
  std::string format = "zinc";
  std::string hardware;
  plan::PlanOptions plan;
  train::Overrides flags;
  int ranks_per_host = 0;
  TuningArguments tuning;
  bool save_frozen = false;
  bool pack = false;
  std::string diff;
  std::string html;
  bool json = false;
  bool kernels = false;
  bool computes_only = false;
  int64_t new_tokens = 0;  // with computes_only
  FitArguments fit;
  // --format deepspeed without a model
  plan::EstimatorInput estimate;
};

hub::ModelConfigFile model_of(const PlanArguments& options) {
  if (options.model.empty()) throw ConfigError("--model must name a model");
  return hub::find_model_config(options.model);
}

int print_estimate(const PlanArguments& options) {
  plan::EstimatorInput input = options.estimate;
  if (input.num_parameters == 0) {
    const auto counts = plan::count_parameters(model_of(options));
    input.num_parameters = counts.num_parameters;
    input.largest_layer = counts.largest_layer;
  }
  fmt::print("{}", plan::deepspeed_estimate(input));
  return kDone;
}

int print_program(const plan::PlannedProgram& program, const PlanArguments& options) {
  if (!options.html.empty()) {
    std::optional<files::json::Value> other;
    if (!options.diff.empty()) {
      other = files::json::parse_file(options.diff);
      describe_difference(program, *other);  // throws where it is no program
    }
    const std::string page = plan::html_of(
        program, options.config, {.name = options.diff, .program = other ? &*other : nullptr});
    files::write_file_atomically(options.html, page);
    fmt::print("{}: the step, {} kB; open it in a browser\n", options.html, page.size() / 1000);
  } else if (!options.diff.empty()) {
    fmt::print("{}", describe_difference(program, files::json::parse_file(options.diff)));
  } else if (options.json) {
    fmt::print("{}\n", plan::json_of(program));
  } else {
    fmt::print("{}", plan::describe(program));
  }
  return kDone;
}

// A plan of evaluations, and of texts that follow prompts of --seq tokens.
int print_computing_plan(const PlanArguments& options, const hub::ModelConfigFile& model,
                         const train::Config& config) {
  plan::PlannedTexts texts;
  if (options.new_tokens > 0) {
    texts = {.count = config.engine.batch.micro_batch,
             .prompt_tokens = options.plan.seq,
             .new_tokens = options.new_tokens};
  }
  const plan::ComputingPlan plan = plan::make_computing_plan(model, config, options.plan, texts);
  fmt::print("{}", options.json ? plan::json_of(plan) + "\n" : plan::describe(plan));
  return kDone;
}

int make_plan(PlanArguments options) {
  if (options.format == "deepspeed") return print_estimate(options);
  hub::ModelConfigFile model = model_of(options);
  model.tuning = tuning_of(options.tuning, hub::model_type(model.config));
  options.plan.save_frozen = options.save_frozen || model.tuning.is_all() ||
                             !model.new_parameters.empty() || model.stored_vocabulary != 0;
  if (options.config.empty() && !options.fit.fit) {
    throw ConfigError("--config must name a configuration");
  }
  options.plan.device = parse_device(options.device);
  const int64_t longest = hub::max_positions(model.config);
  if (options.plan.seq == 0) options.plan.seq = std::min(longest, kDefaultSequence);
  if (options.plan.seq > longest) {
    throw ConfigError(
        fmt::format("--seq {} is longer than the model's {} positions", options.plan.seq, longest));
  }
  if (options.plan.longest > options.plan.seq) {
    throw ConfigError(
        fmt::format("--longest {} is longer than --seq {}: records that are longer "
                    "are cut or left out",
                    options.plan.longest, options.plan.seq));
  }
  if (options.new_tokens > 0 && !options.computes_only) {
    throw ConfigError("--new-tokens are of a model that writes: give --computes-only too");
  }
  if (options.computes_only && (options.fit.fit || options.plan.program || options.kernels ||
                                !options.diff.empty() || !options.html.empty())) {
    throw ConfigError(
        "--computes-only plans bytes and no step: leave --fit, --kernels, --program, --diff and "
        "--html out");
  }
  if (options.plan.longest > 0 && options.pack) {
    throw ConfigError("--pack fills rows of --seq tokens; --longest is of records that are padded");
  }
  if (!options.dtype.empty()) {
    options.flags.dtype = parse_dtype(options.dtype);
    if (!options.flags.dtype || !is_float(*options.flags.dtype)) {
      throw ConfigError(fmt::format("--dtype must be f32, bf16 or f16, not '{}'", options.dtype));
    }
  }
  options.plan.fields = plan::fields_of(model.config, options.pack);
  options.flags.sequence = options.plan.seq;
  options.flags.hidden_size = hub::hidden_size(model.config);
  const int ranks_per_host =
      options.ranks_per_host > 0 ? options.ranks_per_host : std::min(options.plan.world, 8);
  if (options.plan.num_threads == 0) {
    options.plan.num_threads = threads_per_rank(ranks_per_host);
  }
  options.plan.ranks_per_host = ranks_per_host;
  options.plan.backend = planned_backend(options.device, options.comm);
  options.plan.hardware = find_hardware(options.hardware, options.plan.device.kind);
  options.plan.device_room = room_for(options.plan.device, ranks_per_host).bytes;
  if (options.fit.fit) {
    return run_fit(options.fit, {.model = std::move(model),
                                 .plan = options.plan,
                                 .flags = options.flags,
                                 .config = options.config,
                                 .json = options.json});
  }
  std::optional<int64_t> device_memory;
  if (!options.fit.device_memory.empty()) {
    device_memory = device_memory_of(options.fit, ranks_per_host);
  }
  options.plan.program = options.plan.program || !options.diff.empty() || !options.html.empty();
  const bool is_table = !options.json && !options.plan.program && !options.kernels;
  const train::Config config =
      filled(model, train::load_config(options.config, options.plan.world, options.flags),
             options.plan, device_memory, is_table);
  if (options.computes_only) return print_computing_plan(options, model, config);
  const plan::Plan plan = plan::make_plan(model, config, options.plan);
  if (options.plan.program) return print_program(*plan.program, options);
  if (options.json) {
    fmt::print("{}\n", plan::json_of(plan));
    return kDone;
  }
  if (options.kernels) {
    fmt::print("{}", plan::describe_kernels(plan));
    return kDone;
  }
  print_plan(plan, model, config, ranks_per_host);
  return kDone;
}

// A count of weights as people write it, 1500000000, 1.5e9 or 1.5B (K, M, B), in digits. Text that
// is no whole number comes back unchanged, for the parser to refuse.
std::string count_in_digits(const std::string& text) {
  constexpr double kMax = 1e15;
  // Relative error of a number that is no binary fraction, as in 8.2B.
  constexpr double kRounding = 4e-16;
  char* end = nullptr;
  double count = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  if (end == text.c_str()) return text;
  if (unit == "K" || unit == "M" || unit == "B") {
    count *= unit == "K" ? 1e3 : unit == "M" ? 1e6 : 1e9;
  } else if (!unit.empty()) {
    return text;
  }
  const double whole = std::round(count);
  if (!(std::abs(count) <= kMax) || std::abs(count - whole) > kRounding * std::abs(count)) {
    return text;
  }
  return fmt::format("{}", static_cast<int64_t>(whole));
}

}  // namespace

void add_plan_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<PlanArguments>();
  options->plan.num_threads = 0;
  CLI::App* verb = app.add_subcommand("plan", "The bytes, traffic and time of a run, in advance");
  train::Overrides& flags = options->flags;
  verb->add_option("--config", options->config, "DeepSpeed JSON configuration");
  verb->add_option("--model", options->model, "Preset, config.json or a folder that holds one");
  verb->add_option("--world", options->plan.world, "Ranks (default 1)")
      ->check(CLI::Range(1, 65536));
  verb->add_option("--batch", flags.micro_batch, "Sequences per rank and micro-step");
  verb->add_option("--seq", options->plan.seq, "Tokens per sequence")->check(CLI::PositiveNumber);
  verb->add_option("--grad-accum", flags.accumulation, "Micro-steps per optimizer step");
  verb->add_option("--dtype", options->dtype, "f32, bf16 or f16");
  verb->add_option("--device", options->device, "cpu (default) or cuda; needs no GPU");
  verb->add_option("--comm", options->comm, std::string(comm_help()));
  verb->add_option("--threads", options->plan.num_threads,
                   "Per rank (default: this machine's cores / ranks per host)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--ranks-per-host", options->ranks_per_host,
                   "That share a host's memory (default: all, at most 8)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--hardware", options->hardware,
                   "The machine's speeds, for the time of a step (default: what `zinc bench "
                   "ceilings --save` measured)");
  add_fit_options(*verb, options->fit);
  add_tuning_options(*verb, options->tuning);
  verb->add_flag("--save-frozen", options->save_frozen, "Checkpoints hold frozen weights too");
  verb->add_flag("--pack", options->pack, "Of a run on packed records: zinc train --pack");
  verb->add_option("--longest", options->plan.longest,
                   "Of a run on padded records: tokens of the longest one, which zinc train and "
                   "zinc data say (default: --seq)")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--computes-only", options->computes_only,
                 "Of a model that is asked and not trained, as zinc evaluate and zinc generate do");
  verb->add_option(
          "--new-tokens", options->new_tokens,
          "With --computes-only: it also writes --batch texts side by side, so many tokens "
          "behind prompts of --seq")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--json", options->json, "Figures for programs");
  verb->add_flag("--kernels", options->kernels,
                 "The kernels of a step instead: launches, bytes, FLOP and time of each kind");
  verb->add_flag("--program", options->plan.program,
                 "The step instead: what it gathers, reduces and reads, and when");
  verb->add_option("--diff", options->diff,
                   "With --program: how it differs from what --program --json wrote to this file");
  verb->add_option("--html", options->html,
                   "With --program: as a page in this file, with --diff both programs")
      ->type_name("FILE");
  verb->add_option("--without", options->plan.without_rewrites,
                   "Passes of the step program to leave out, as in --without prefetch");
  verb->add_option(
          "--rank", options->plan.rank,
          "Whose plan (default: the fullest; all take the same, but for ranks of a pipeline)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option(
          "--format", options->format,
          "zinc (default), or deepspeed: its estimator's table, which knows no activations")
      ->check(CLI::IsMember({"zinc", "deepspeed"}));
  verb->add_option(
          "--params", options->estimate.num_parameters,
          "With --format deepspeed: weights, instead of --model, as in 2851000000 or 2.851B")
      ->transform(count_in_digits);
  verb->add_option("--largest-layer", options->estimate.largest_layer,
                   "With --format deepspeed: weights of the largest layer, as in 32M")
      ->transform(count_in_digits);
  verb->add_option("--gpus", options->estimate.gpus_per_node, "With --format deepspeed: per node");
  verb->add_option("--nodes", options->estimate.num_nodes, "With --format deepspeed");
  begin_help(
      *verb,
      {"--config", "--model", "--world", "--seq", "--batch", "--device", "--hardware", "--fit"},
      "zinc plan --config ds.json --model llama-8b --world 8 --seq 4096", "docs/planning.md");
  put_into(*verb, kOfModel, {"--freeze", "--train", "--lora", "--adapter", "--quantize"});
  put_into(*verb, kOfLength, {"--grad-accum", "--pack", "--longest"});
  put_into(*verb, kOfMemory, {"--dtype", "--save-frozen", "--computes-only", "--new-tokens"});
  put_into(*verb, kOfRanks, {"--comm", "--threads", "--ranks-per-host", "--rank"});
  put_into(*verb, kOfSearch,
           {"--global-batch", "--device-memory", "--host-memory", "--nvme-memory", "--nvme-path",
            "--write", "--explain", "--max-plans"});
  put_into(*verb, kOfOutput,
           {"--json", "--kernels", "--program", "--diff", "--html", "--without", "--format",
            "--params", "--largest-layer", "--gpus", "--nodes"});
  verb->callback([options, &action] { action = [options] { return make_plan(*options); }; });
}

}  // namespace zinc::apps
