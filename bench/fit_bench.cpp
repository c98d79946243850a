#include "bench/fit_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <map>
#include <utility>

#include "bench/ceilings.h"
#include "bench/measure_hardware.h"
#include "bench/samples.h"
#include "comm/local/local.h"
#include "files/json/writer.h"
#include "hub/model.h"
#include "plan/fill.h"
#include "plan/fit.h"
#include "train/trainer.h"

namespace zinc::bench {
namespace {

constexpr int64_t kSeq = 32;
// Sequences are short, so that the time that memory saves is a good part of a step.
constexpr int64_t kFillSeq = 16;
constexpr int64_t kSteps = 4;  // of a run; the first one warms up

// States stay on the device, because a CPU's host memory is the same; buffers and order are fixed,
// so that every candidate can be timed.
constexpr const char* kFixed = R"({
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"overlap_comm": false, "reduce_bucket_size": 50000000,
    "allgather_bucket_size": 50000000, "sub_group_size": 50000000,
    "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
  "zinc": {"schedule": "horizontal"}})";

// A key that is open, and its value with the least memory.
struct OpenKey {
  const char* name;
  const char* config;
  std::function<void(zero::EngineConfig&)> keep_least;
};

std::vector<OpenKey> open_keys() {
  return {{"zinc.resident_memory", R"({
         "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8,
         "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
         "zero_optimization": {"stage": 3, "overlap_comm": false, "stage3_max_live_parameters": 0,
           "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
         "zinc": {"resident_memory": "auto"}})",
           [](zero::EngineConfig& engine) { engine.zero.resident_memory = 0; }},
          {"stage3_max_live_parameters", R"({
         "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
         "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
         "zero_optimization": {"stage": 3, "overlap_comm": false,
           "stage3_max_live_parameters": "auto", "stage3_max_reuse_distance": 1000000000,
           "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0}})",
           [](zero::EngineConfig& engine) { engine.zero.max_live_parameters = 0; }},
          {"offload_optimizer.ratio", R"({
         "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
         "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
         "zero_optimization": {"stage": 1, "overlap_comm": false,
           "offload_optimizer": {"device": "cpu", "ratio": "auto"}},
         "zinc": {"offload_step": "host"}})",
           [](zero::EngineConfig& engine) { engine.zero.offload_optimizer.ratio = 1.0; }},
          {"number_checkpoints", R"({
         "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1,
         "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
         "zero_optimization": {"stage": 1, "overlap_comm": false},
         "activation_checkpointing": {"number_checkpoints": "auto"}})",
           [](zero::EngineConfig& engine) { engine.recompute.every_blocks = 1; }}};
}

nn::Gpt2Config gpt2(int64_t shrink, int64_t num_layers) {
  return {.vocab_size = 512,
          .max_positions = kSeq,
          .hidden_size = 512 / shrink,
          .num_layers = num_layers,
          .num_heads = 4};
}

std::vector<std::pair<std::string, hub::ModelConfigFile>> models(int64_t shrink) {
  nn::LlamaConfig llama;
  llama.vocab_size = 512;
  llama.max_positions = kSeq;
  llama.hidden_size = 384 / shrink;
  llama.intermediate_size = 1024 / shrink;
  llama.num_layers = 6;
  llama.num_heads = 4;
  llama.num_kv_heads = 2;
  return {{fmt::format("GPT-2, 4 blocks {} wide", 512 / shrink), {.config = gpt2(shrink, 4)}},
          {fmt::format("Llama, 6 blocks {} wide", 384 / shrink), {.config = llama}}};
}

class Tokens final : public data::Dataset {
 public:
  explicit Tokens(int64_t seq) : seq_(seq) {}
  int64_t num_samples() const override { return 64; }
  void read(int64_t index, data::Sample& sample) const override {
    for (int64_t i = 0; i < seq_; ++i) {
      sample.tokens.push_back(static_cast<int32_t>((31 * index + 7 * i) % 512));
      sample.labels.push_back(static_cast<int32_t>((31 * index + 7 * (i + 1)) % 512));
    }
  }
  std::string describe() const override { return "a sequence"; }

 private:
  int64_t seq_;
};

// Processor time of this process, over all its threads.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class StepClock final : public train::TrainerObserver {
 public:
  void on_step(const train::StepMetrics& metrics, const train::Progress&) override {
    const double now = cpu_seconds();
    if (metrics.step > 1) steps.push_back(now - last_);
    last_ = now;
  }
  std::vector<double> steps;

 private:
  double last_ = 0.0;
};

struct Measured {
  int64_t reserved = 0;
  double seconds = std::numeric_limits<double>::infinity();
};

Measured measure(const hub::ModelConfigFile& model, const train::Config& config, int world_size,
                 int64_t seq) {
  Measured result{};
  const Tokens data(seq);
  std::vector<int64_t> reserved(static_cast<size_t>(world_size));
  comm::run_local_ranks(world_size, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    const auto made = hub::make_model(model);
    zero::Engine engine(*made, config.engine, world, {.total_steps = kSteps});
    data::Loader loader(data, {.micro_batch = config.engine.batch.micro_batch,
                               .seq_len = seq,
                               .seed = 5,
                               .rank = world.rank(),
                               .world = world.size(),
                               .prefetch_batches = 0});
    StepClock clock;
    train::Trainer trainer(engine, loader, nullptr, {}, &clock, {.steps = kSteps});
    trainer.run();
    reserved[static_cast<size_t>(world.rank())] =
        world.context().allocator().report().reserved[0].peak;
    if (world.is_main()) result.seconds = std::ranges::min(clock.steps) / world_size;
  });
  result.reserved = std::ranges::max(reserved);
  return result;
}

plan::PlanOptions plan_options(const FitBenchOptions& options, const plan::Hardware& hardware) {
  return {.world = options.world,
          .seq = kSeq,
          .backend = "local",
          .evaluate = false,
          .save = false,
          .ranks_per_host = options.world,
          .hardware = hardware};
}

// Runs of candidates of one model, by the file that makes them.
class Bench {
 public:
  Bench(std::string name, hub::ModelConfigFile model, const FitBenchOptions& options,
        const plan::Hardware& hardware, const std::function<void(const std::string&)>& progress)
      : options_(options), progress_(progress) {
    result_.name = std::move(name);
    request_.model = std::move(model);
    request_.plan = plan_options(options, hardware);
    request_.space = {.world = options.world,
                      .global_batch = options.global_batch,
                      .config = kFixed,
                      .flags = {}};
    request_.limits = {.device = int64_t{1} << 50, .one_pool = true};
    request_.threads = options.world;
  }

  FitBenchModel run() {
    progress_(fmt::format("{}: choosing at {} limits", result_.name, options_.limits));
    find_candidates();
    choose();
    for (int round = 0; round < options_.rounds; ++round) {
      progress_(fmt::format("{}: {} candidates, round {} of {}", result_.name, runs_.size(),
                            round + 1, options_.rounds));
      for (auto& [text, run] : runs_) {
        const Measured now = measure(request_.model, run.config, options_.world, kSeq);
        run.measured.reserved = now.reserved;
        run.measured.seconds = std::min(run.measured.seconds, now.seconds);
      }
    }
    compare();
    return std::move(result_);
  }

 private:
  struct Run {
    std::string words;
    train::Config config;
    int64_t planned = 0;
    double predicted = 0.0;
    Measured measured;
  };

  Run& add(const plan::FitSpace& space, const files::json::Value& file, std::string words) {
    const std::string text = files::json::write(file);
    const auto [at, is_new] = runs_.try_emplace(text);
    Run& run = at->second;
    if (!is_new) return run;
    run.words = std::move(words);
    run.config = space.config_of(file);
    const plan::Plan plan = plan::make_plan(request_.model, run.config, request_.plan);
    run.planned = plan.fullest.peaks.reserved[0].peak;
    run.predicted = plan.fullest.time->step_seconds;
    return run;
  }

  void find_candidates() {
    const plan::FitSpace space(request_.model, request_.space);
    std::vector<plan::FitCandidate> open = space.roots();
    std::map<plan::FitCandidate, bool> seen;
    while (!open.empty()) {
      const plan::FitCandidate candidate = open.back();
      open.pop_back();
      if (!seen.emplace(candidate, true).second) continue;
      const files::json::Value file = space.file_of(candidate);
      static_cast<void>(add(space, file, space.words(candidate)));
      for (const plan::FitCandidate& next : space.next(candidate)) open.push_back(next);
    }
    result_.candidates = static_cast<int>(runs_.size());
  }

  void choose() {
    int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
    for (const auto& [text, run] : runs_) {
      least = std::min(least, run.planned);
      most = std::max(most, run.planned);
    }
    const plan::FitSpace space(request_.model, request_.space);
    for (int i = 0; i < options_.limits; ++i) {
      request_.limits.device = least + (most - least) * i / std::max(1, options_.limits - 1);
      const plan::FitResult fitted = plan::fit(request_);
      const plan::FittedConfig& answer = fitted.best.at(0);
      static_cast<void>(add(space, answer.file, answer.words));
      chosen_.emplace_back(request_.limits.device, files::json::write(answer.file));
    }
  }

  void compare() {
    for (const auto& [limit, text] : chosen_) {
      const Run& run = runs_.at(text);
      FitBenchRow row{.limit = limit,
                      .words = run.words,
                      .planned = run.planned,
                      .measured = run.measured.reserved,
                      .predicted_seconds = run.predicted,
                      .seconds = run.measured.seconds,
                      .best_seconds = std::numeric_limits<double>::infinity()};
      for (const auto& [other_text, other] : runs_) {
        if (other.planned > limit || other.measured.seconds >= row.best_seconds) continue;
        row.best_seconds = other.measured.seconds;
        row.best_words = other.words;
      }
      result_.rows.push_back(std::move(row));
    }
  }

  const FitBenchOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  plan::FitRequest request_;
  std::map<std::string, Run> runs_;
  std::vector<std::pair<int64_t, std::string>> chosen_;  // by limit
  FitBenchModel result_;
};

// Each open key of a model of eight blocks, with memory between the least and the most that it may
// keep; runs of all take turns.
std::vector<FillBenchRow> fills(const FitBenchOptions& options, const plan::Hardware& hardware,
                                const std::function<void(const std::string&)>& progress) {
  const hub::ModelConfigFile model{.config = gpt2(options.shrink, 8)};
  plan::PlanOptions how = plan_options(options, hardware);
  how.seq = kFillSeq;
  std::vector<FillBenchRow> rows;
  std::vector<train::Config> configs;
  const auto reserved = [](const plan::Plan& plan) { return plan.fullest.peaks.reserved[0].peak; };
  for (const OpenKey& key : open_keys()) {
    const train::Config open = train::parse_config(key.config, key.name, options.world);
    const auto filled = [&](int64_t limit) {
      return plan::fill_memory(model, open, how, {.device = limit}).config;
    };
    train::Config nothing = open;
    nothing.open.clear();
    key.keep_least(nothing.engine);
    const int64_t least = reserved(plan::make_plan(model, nothing, how));
    const int64_t most = reserved(plan::make_plan(model, filled(int64_t{1} << 50), how));
    for (const int share : {0, 25, 50, 75, 100}) {
      configs.push_back(filled(least + (most - least) * share / 100));
      const plan::Plan plan = plan::make_plan(model, configs.back(), how);
      const auto gathers = plan.fullest.step.find("all_gather");
      const bool has_gathers = gathers != plan.fullest.step.end();
      rows.push_back(
          {.key = key.name,
           .share = share,
           .reserved = reserved(plan),
           .gathered_bytes = has_gathers ? static_cast<double>(gathers->second.bytes_sent) : 0.0,
           .predicted_seconds = plan.fullest.time->step_seconds,
           .seconds = std::numeric_limits<double>::infinity()});
    }
  }
  for (int round = 0; round < options.rounds; ++round) {
    progress(
        fmt::format("\"auto\": {} runs, round {} of {}", rows.size(), round + 1, options.rounds));
    for (size_t i = 0; i < rows.size(); ++i) {
      const Measured now = measure(model, configs[i], options.world, kFillSeq);
      rows[i].seconds = std::min(rows[i].seconds, now.seconds);
      rows[i].measured = now.reserved;
    }
  }
  return rows;
}

plan::Hardware measured_hardware(const FitBenchOptions& options) {
  plan::Hardware hardware;
  comm::run_local_ranks(options.world, {.seed = 5, .num_threads = 1}, [&](comm::World& world) {
    std::vector<CeilingFigure> ceilings;
    if (options.shrink == 1) {
      ceilings = measure_ceilings(world.context());
    } else {  // takes long, whatever the models' width
      for (const char* name :
           {"stream read 1 write 0 update 0", "stream read 0 write 1 update 0"}) {
        ceilings.push_back({.name = name, .unit = "GB/s", .median = 1.0, .best = 1.0});
      }
    }
    const double seconds = options.shrink == 1 ? MeasureOptions{}.seconds : 0.0;
    const plan::Hardware mine = measure_hardware(
        world, ceilings, {.name = "this machine", .seconds = seconds, .shrink = options.shrink});
    if (world.is_main()) hardware = mine;
  });
  return hardware;
}

double mib(int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

}  // namespace

FitBenchResult run_fit_bench(const FitBenchOptions& options,
                             const std::function<void(const std::string&)>& progress) {
  FitBenchResult result;
  result.seconds = seconds_of([&] {
    progress("measuring the machine");
    result.hardware = measured_hardware(options);
    result.fills = fills(options, result.hardware, progress);
    for (auto& [name, model] : models(options.shrink)) {
      result.models.push_back(Bench(name, model, options, result.hardware, progress).run());
    }
  });
  return result;
}

bool FitBenchResult::holds(double ratio) const {
  return std::ranges::all_of(models, [&](const FitBenchModel& model) {
    return std::ranges::all_of(model.rows, [&](const FitBenchRow& row) {
      return row.is_within() && row.ratio() <= ratio;
    });
  });
}

std::string describe(const FitBenchResult& result) {
  std::string text;
  for (const FitBenchModel& model : result.models) {
    text += fmt::format("{}, {} candidates\n\n", model.name, model.candidates);
    text +=
        "| limit MiB | measured MiB | within | chosen | predicted ms | measured ms | best ms "
        "| chosen / best | best |\n|---|---|---|---|---|---|---|---|---|\n";
    for (const FitBenchRow& row : model.rows) {
      text +=
          fmt::format("| {:.1f} | {:.1f} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {} |\n",
                      mib(row.limit), mib(row.measured), row.is_within() ? "yes" : "no", row.words,
                      1e3 * row.predicted_seconds, 1e3 * row.seconds, 1e3 * row.best_seconds,
                      row.ratio(), row.best_words == row.words ? "the same" : row.best_words);
    }
    text += "\n";
  }
  text +=
      "GPT-2, 8 blocks, sequences of 16\n\n"
      "| key that is \"auto\" | memory | reserved MiB | measured MiB | gathers send MiB "
      "| predicted ms | of least memory | measured ms | of least memory |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  const FillBenchRow* least = nullptr;
  for (const FillBenchRow& row : result.fills) {
    if (row.share == 0) least = &row;
    text += fmt::format(
        "| {} | {} % | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.1f} | {:.2f} |\n", row.key,
        row.share, mib(row.reserved), mib(row.measured), row.gathered_bytes / 0x1p20,
        1e3 * row.predicted_seconds, row.predicted_seconds / least->predicted_seconds,
        1e3 * row.seconds, row.seconds / least->seconds);
  }
  text += fmt::format("\n{:.0f} s\n", result.seconds);
  return text;
}

}  // namespace zinc::bench
