#include "bench/swap_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/io_bench.h"
#include "bench/random_batch.h"
#include "bench/samples.h"
#include "comm/gather_values.h"
#include "core/error.h"
#include "hub/model.h"
#include "hub/model_config.h"
#include "zero/engine.h"

namespace zinc::bench {
namespace {

using zero::OffloadDevice;
using zero::PassOrder;

zero::EngineConfig engine_config(const SwapBenchOptions& options, OffloadDevice device,
                                 PassOrder order, bool verify, double clipping, bool overlap) {
  zero::EngineConfig config;
  config.batch = {.micro_batch = options.batch, .accumulation = options.accumulation};
  config.precision.dtype = options.dtype;
  config.gradient.clipping = clipping;
  config.recompute.every_blocks = 1;
  config.zero.stage = 3;
  config.zero.sub_group_size = 4 << 20;
  config.zero.max_reuse_distance = 0;
  config.zero.param_persistence_threshold = 0;
  config.zero.offload_optimizer = {.device = device,
                                   .nvme_path = options.directory,
                                   .pipeline_read = true,
                                   .pipeline_write = true};
  config.zero.offload_param = {.device = device,
                               .nvme_path = options.directory,
                               .buffer_count = 6,
                               .buffer_size = 4 << 20,
                               .max_in_cpu = 0};
  config.aio = {.block_size = options.storage.block_size,
                .queue_depth = options.storage.queue_depth,
                .threads = options.storage.threads,
                .single_submit = options.storage.single_submit,
                .overlap_events = options.storage.overlap_events};
  config.pass_order = order;
  config.verify_swap = verify;
  config.overlap_update = overlap;
  return config;
}

// Weights in the initialisers' range that cost next to nothing to make: an engine's first seconds
// would go into normal numbers otherwise. Gains and biases have their initialisers' values.
class QuickWeights final : public nn::WeightSource {
 public:
  std::optional<Shape> shape_of(const autograd::Parameter& parameter) const override {
    return parameter.shape();
  }
  void read(const autograd::Parameter& parameter, int64_t begin, View out) const override {
    if (parameter.shape().rank() <= 1) return vectors_.read(parameter, begin, out);
    dispatch_float(out.dtype(), [&]<class T>() {
      T* values = static_cast<T*>(out.data());
      for (int64_t i = 0; i < out.numel(); ++i) {
        const uint32_t mixed = static_cast<uint32_t>(begin + i) * 2654435761u;
        values[i] = T(0.04f * (static_cast<float>(mixed >> 8) * 0x1p-24f - 0.5f));
      }
    });
  }

 private:
  nn::InitializerSource vectors_{0};
};

class Candidate {
 public:
  Candidate(std::string name, const hub::ModelConfig& model, const nn::WeightSource& weights,
            const zero::EngineConfig& config, comm::World& world)
      : model_(hub::make_model(model)), engine_(*model_, config, world, {.weights = &weights}) {
    run_.name = std::move(name);
  }

  // The update of a step may end beside the next step. A timed step then begins where another has
  // ended, and leaves its own rest to no other configuration.
  void run_turn(int64_t step, const SwapBenchOptions& options) {
    const zero::EngineConfig& config = engine_.config();
    const bool is_late = config.overlap_update.value_or(true) && config.gradient.clipping > 0.0;
    if (is_late) run_step(0, options);
    run_step(step, options);
    engine_.finish_update();
  }

  void run_step(int64_t step, const SwapBenchOptions& options) {
    comm::World& world = engine_.world();
    std::vector<nn::Batch> batches;
    for (int64_t i = 0; i < options.accumulation; ++i) {
      batches.push_back(
          random_batch((step * options.accumulation + i) * world.size() + world.rank(),
                       options.batch, options.seq, model_->vocab_size()));
    }
    const auto together = static_cast<size_t>(engine_.config().batches_together());
    const offload::SwapTraffic before = engine_.usage().swap;
    double passes = 0.0;
    double update = 0.0;
    for (size_t i = 0; i < batches.size(); i += together) {
      passes += seconds_of([&] {
        engine_.run_passes(std::span(batches).subspan(i, together));
        world.context().compute()->synchronize();
      });
      run_.passes_bytes = bytes(engine_.usage().swap - before);
      update += seconds_of([&] {
        run_.loss = engine_.step().loss;
        world.context().compute()->synchronize();
      });
    }
    const offload::SwapTraffic moved = engine_.usage().swap - before;
    run_.update_bytes = bytes(moved) - run_.passes_bytes;
    if (step == 0) return;
    run_.passes_seconds.push_back(passes);
    run_.update_seconds.push_back(update);
    run_.step_seconds.push_back(passes + update);
    run_.busy_seconds.push_back(1e-9 * static_cast<double>(moved.busy_ns));
    run_.stall_seconds.push_back(1e-9 * static_cast<double>(moved.stall_ns));
  }

  const SwapRun& run() const { return run_; }

 private:
  static int64_t bytes(const offload::SwapTraffic& traffic) {
    return traffic.bytes_read + traffic.bytes_written;
  }

  std::unique_ptr<nn::Model> model_;
  zero::Engine engine_;
  SwapRun run_;
};

std::unique_ptr<Candidate> make_candidate(const std::string& name, const hub::ModelConfig& model,
                                          const SwapBenchOptions& options, comm::World& world) {
  const auto make = [&](OffloadDevice device, PassOrder order, bool verify = true,
                        double clipping = 0.0, bool overlap = true) {
    return std::make_unique<Candidate>(
        name, model, QuickWeights(),
        engine_config(options, device, order, verify, clipping, overlap), world);
  };
  if (name == "memory") return make(OffloadDevice::cpu, PassOrder::horizontal);
  if (name == "memory vertical") return make(OffloadDevice::cpu, PassOrder::vertical);
  if (name == "horizontal") return make(OffloadDevice::nvme, PassOrder::horizontal);
  if (name == "vertical") return make(OffloadDevice::nvme, PassOrder::vertical);
  if (name == "clipped") return make(OffloadDevice::nvme, PassOrder::vertical, true, 1.0, false);
  if (name == "late") return make(OffloadDevice::nvme, PassOrder::vertical, true, 1.0);
  if (name == "unverified") return make(OffloadDevice::nvme, PassOrder::vertical, false);
  throw InvalidArgument(str("swap bench: there is no run called '", name,
                            "'; there are memory, memory vertical, horizontal, vertical, "
                            "clipped, late and unverified"));
}

hub::ModelConfig model_of(const SwapBenchOptions& options) {
  if (!options.preset.empty()) return hub::find_model_config(options.preset).config;
  return nn::Gpt2Config{.vocab_size = 512,
                        .max_positions = options.seq,
                        .hidden_size = 1024,
                        .num_layers = 4,
                        .num_heads = 16};
}

double mixed_rate(const SwapBenchOptions& options) {
  const IoBenchReport report = run_io_bench({.directory = options.directory,
                                             .file_bytes = options.probe_bytes,
                                             .repetitions = 1,
                                             .block_sizes = {options.storage.block_size},
                                             .queue_depths = {options.storage.queue_depth},
                                             .threads = {options.storage.threads},
                                             .fio = false},
                                            {});
  return report.best().zinc.mixed;
}

// The median of of(i) over the timed steps i.
template <class Of>
double median_over(size_t steps, const Of& of) {
  std::vector<double> values;
  for (size_t i = 0; i < steps; ++i) values.push_back(of(i));
  return median(values);
}

std::optional<double> ratio_of(const SwapRun* above, const SwapRun* below) {
  if (above == nullptr || below == nullptr) return std::nullopt;
  return median_over(above->step_seconds.size(),
                     [&](size_t i) { return above->step_seconds[i] / below->step_seconds[i]; });
}

}  // namespace

std::vector<std::string> swap_bench_runs() {
  return {"memory", "memory vertical", "horizontal", "vertical", "clipped", "late", "unverified"};
}

const SwapRun* SwapBenchResult::find(const std::string& name) const {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const SwapRun& run) { return run.name == name; });
  return found == runs.end() ? nullptr : &*found;
}

std::optional<double> SwapBenchResult::vertical_gain() const {
  return ratio_of(find("horizontal"), find("vertical"));
}

std::optional<double> SwapBenchResult::update_overhead() const {
  const SwapRun* run = find("clipped");
  const SwapRun* memory = find("memory vertical");
  if (run == nullptr || memory == nullptr) return std::nullopt;
  return median_over(run->update_seconds.size(), [&](size_t i) {
    const double disk = static_cast<double>(run->update_bytes) / mixed_bytes_per_second[i];
    return run->update_seconds[i] / std::max(disk, memory->update_seconds[i]);
  });
}

std::optional<double> SwapBenchResult::step_overhead() const {
  const SwapRun* run = find("vertical");
  const SwapRun* memory = find("memory vertical");
  if (run == nullptr || memory == nullptr) return std::nullopt;
  return median_over(run->step_seconds.size(), [&](size_t i) {
    const double disk =
        static_cast<double>(run->passes_bytes + run->update_bytes) / mixed_bytes_per_second[i];
    return run->step_seconds[i] / std::max(disk, memory->step_seconds[i]);
  });
}

std::optional<double> SwapBenchResult::overlap_gain() const {
  return ratio_of(find("clipped"), find("vertical"));
}

std::optional<double> SwapBenchResult::late_gain() const {
  return ratio_of(find("clipped"), find("late"));
}

std::optional<double> SwapBenchResult::crc_cost() const {
  const std::optional<double> ratio = ratio_of(find("vertical"), find("unverified"));
  if (!ratio) return std::nullopt;
  return *ratio - 1.0;
}

SwapBenchResult run_swap_bench(comm::World& world, const SwapBenchOptions& options,
                               const std::function<void(const std::string&, double)>& after_step) {
  require(options.steps > 0 && options.batch > 0 && options.seq > 0 && options.accumulation > 0,
          "swap bench: steps, batch, seq and accumulation must be positive");
  SwapBenchResult result;
  std::vector<std::unique_ptr<Candidate>> candidates;
  result.seconds += seconds_of([&] {
    const hub::ModelConfig model = model_of(options);
    for (const std::string& name : options.runs.empty() ? swap_bench_runs() : options.runs) {
      candidates.push_back(make_candidate(name, model, options, world));
    }
  });
  double round_seconds = 0.0;
  // A round that would end too late is not begun; one is always timed.
  for (int64_t step = 0; step <= options.steps; ++step) {
    const bool late = result.seconds + round_seconds > options.limit_seconds;
    if (comm::any_rank(world, step > 1 && late)) break;
    round_seconds = seconds_of([&] {
      if (step > 0) result.mixed_bytes_per_second.push_back(mixed_rate(options));
      for (const auto& candidate : candidates) {
        candidate->run_turn(step, options);
        if (step == 0 || !after_step) continue;
        after_step(candidate->run().name, candidate->run().step_seconds.back());
      }
    });
    result.seconds += round_seconds;
  }
  for (const auto& candidate : candidates) result.runs.push_back(candidate->run());
  return result;
}

std::string describe(const SwapBenchResult& result) {
  constexpr double kMiB = 0x1p20;
  const double rate = median(result.mixed_bytes_per_second);
  std::string text =
      fmt::format("{:<16} {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} {:>10} {:>8}\n", "ms", "passes",
                  "update", "step", "swapped MiB", "at the disk", "under way", "waited", "loss");
  for (const SwapRun& run : result.runs) {
    const auto bytes = static_cast<double>(run.passes_bytes + run.update_bytes);
    text += fmt::format(
        "{:<16} {:>10.1f} {:>10.1f} {:>10.1f} {:>11.1f} {:>11.1f} {:>10.1f} {:>10.1f} {:>8.4f}\n",
        run.name, 1e3 * median(run.passes_seconds), 1e3 * median(run.update_seconds),
        1e3 * median(run.step_seconds), bytes / kMiB, 1e3 * bytes / rate,
        1e3 * median(run.busy_seconds), 1e3 * median(run.stall_seconds), run.loss);
  }
  text += fmt::format("medians of {} timed steps; disk, mixed: {:.1f} MiB/s; {:.1f} s in all\n",
                      result.mixed_bytes_per_second.size(), rate / kMiB, result.seconds);
  const auto line = [&](const char* name, std::optional<double> value) {
    if (value) text += fmt::format("{:<37} {:6.3f}\n", name, *value);
  };
  line("horizontal / vertical", result.vertical_gain());
  line("update / max(disk, update in memory)", result.update_overhead());
  line("step / max(disk, step in memory)", result.step_overhead());
  line("update after / during backward", result.overlap_gain());
  line("update after / beside next forward", result.late_gain());
  line("CRC, share of a step", result.crc_cost());
  return text;
}

}  // namespace zinc::bench
