#include "bench/swap_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/io_bench.h"
#include "bench/random_batch.h"
#include "bench/samples.h"
#include "core/error.h"
#include "train/hub/model_config.h"
#include "train/model.h"
#include "zero/engine.h"

namespace zinc::bench {
namespace {

using zero::OffloadDevice;
using zero::PassOrder;

zero::EngineConfig engine_config(const SwapBenchOptions& options, OffloadDevice device,
                                 PassOrder order, bool verify, double clipping) {
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
  return config;
}

class Candidate {
 public:
  Candidate(std::string name, const train::ModelConfig& model, const zero::EngineConfig& config,
            comm::World& world)
      : name_(std::move(name)), model_(train::make_model(model)), engine_(*model_, config, world) {}

  void run_step(int64_t step, const SwapBenchOptions& options) {
    comm::World& world = engine_.world();
    std::vector<nn::Batch> batches;
    for (int64_t i = 0; i < options.accumulation; ++i) {
      batches.push_back(
          random_batch((step * options.accumulation + i) * world.size() + world.rank(),
                       options.batch, options.seq, model_->vocab_size()));
    }
    const auto together = static_cast<size_t>(engine_.config().batches_together());
    const int64_t before = bytes();
    double passes = 0.0;
    double update = 0.0;
    for (size_t i = 0; i < batches.size(); i += together) {
      passes += seconds_of([&] {
        engine_.run_passes(std::span(batches).subspan(i, together));
        world.context().compute()->synchronize();
      });
      run_.passes_bytes = bytes() - before;
      update += seconds_of([&] {
        run_.loss = engine_.step().loss;
        world.context().compute()->synchronize();
      });
    }
    run_.update_bytes = bytes() - before - run_.passes_bytes;
    if (step == 0) return;
    passes_.add(passes);
    update_.add(update);
    step_.add(passes + update);
  }

  double last() const { return step_.count() == 0 ? 0.0 : step_.last(); }
  const std::string& name() const { return name_; }
  SwapRun result() const {
    SwapRun run = run_;
    run.name = name_;
    run.passes_seconds = passes_.median();
    run.update_seconds = update_.median();
    run.step_seconds = step_.median();
    return run;
  }

 private:
  int64_t bytes() const {
    const zero::SwapTraffic traffic = engine_.swap_traffic();
    return traffic.bytes_read + traffic.bytes_written;
  }

  std::string name_;
  std::unique_ptr<nn::Model> model_;
  zero::Engine engine_;
  SwapRun run_;
  Samples passes_, update_, step_;
};

double mixed_rate(const SwapBenchOptions& options) {
  const IoBenchReport report = run_io_bench({.directory = options.directory,
                                             .file_bytes = options.probe_bytes,
                                             .repetitions = 3,
                                             .block_sizes = {options.storage.block_size},
                                             .queue_depths = {options.storage.queue_depth},
                                             .threads = {options.storage.threads},
                                             .fio = false},
                                            {});
  return report.best().zinc.mixed;
}

}  // namespace

const SwapRun& SwapBenchResult::at(const std::string& name) const {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const SwapRun& run) { return run.name == name; });
  require(found != runs.end(), "swap bench: there is no run called ", name);
  return *found;
}

double SwapBenchResult::vertical_gain() const {
  return at("horizontal").step_seconds / at("vertical").step_seconds;
}

double SwapBenchResult::update_overhead() const {
  const SwapRun& run = at("clipped");
  return run.update_seconds /
         std::max(disk_seconds(run.update_bytes), at("memory vertical").update_seconds);
}

double SwapBenchResult::step_overhead() const {
  const SwapRun& run = at("vertical");
  return run.step_seconds / std::max(disk_seconds(run.passes_bytes + run.update_bytes),
                                     at("memory vertical").step_seconds);
}

double SwapBenchResult::overlap_gain() const {
  return at("clipped").step_seconds / at("vertical").step_seconds;
}

double SwapBenchResult::crc_cost() const {
  return at("vertical").step_seconds / at("unverified").step_seconds - 1.0;
}

SwapBenchResult run_swap_bench(comm::World& world, const SwapBenchOptions& options,
                               const std::function<void(const std::string&, double)>& after_step) {
  require(options.steps > 0 && options.batch > 0 && options.seq > 0 && options.accumulation > 0,
          "swap bench: steps, batch, seq and accumulation must be positive");
  const train::ModelConfigFile model = train::find_model_config(options.preset);
  std::vector<std::unique_ptr<Candidate>> candidates;
  const auto add = [&](const char* name, OffloadDevice device, PassOrder order, bool verify = true,
                       double clipping = 0.0) {
    candidates.push_back(std::make_unique<Candidate>(
        name, model.config, engine_config(options, device, order, verify, clipping), world));
  };
  add("memory", OffloadDevice::cpu, PassOrder::horizontal);
  add("memory vertical", OffloadDevice::cpu, PassOrder::vertical);
  add("horizontal", OffloadDevice::nvme, PassOrder::horizontal);
  add("vertical", OffloadDevice::nvme, PassOrder::vertical);
  add("clipped", OffloadDevice::nvme, PassOrder::vertical, true, 1.0);
  add("unverified", OffloadDevice::nvme, PassOrder::vertical, false);

  const double before = mixed_rate(options);
  for (int64_t step = 0; step <= options.steps; ++step) {
    for (const auto& candidate : candidates) {
      candidate->run_step(step, options);
      if (step > 0 && after_step) after_step(candidate->name(), candidate->last());
    }
  }
  SwapBenchResult result;
  result.mixed_bytes_per_second = 0.5 * (before + mixed_rate(options));
  for (const auto& candidate : candidates) result.runs.push_back(candidate->result());
  return result;
}

std::string describe(const SwapBenchResult& result) {
  constexpr double kMiB = 0x1p20;
  std::string text = fmt::format("{:<16} {:>11} {:>11} {:>11} {:>11} {:>11} {:>8}\n", "", "passes",
                                 "update", "step", "swapped", "at the disk", "loss");
  for (const SwapRun& run : result.runs) {
    const int64_t bytes = run.passes_bytes + run.update_bytes;
    text += fmt::format(
        "{:<16} {:>8.1f} ms {:>8.1f} ms {:>8.1f} ms {:>7.1f} MiB {:>8.1f} ms {:>8.4f}\n", run.name,
        1e3 * run.passes_seconds, 1e3 * run.update_seconds, 1e3 * run.step_seconds,
        static_cast<double>(bytes) / kMiB, 1e3 * result.disk_seconds(bytes), run.loss);
  }
  return text + fmt::format(
                    "disk, mixed      {:8.1f} MiB/s\nhorizontal / vertical {:.2f}\n"
                    "update / max(disk, update in memory) {:.2f}\n"
                    "step / max(disk, step in memory)     {:.2f}\nupdate after / during backward   "
                    "    {:.2f}\nCRC costs {:.1f} % of a step\n",
                    result.mixed_bytes_per_second / kMiB, result.vertical_gain(),
                    result.update_overhead(), result.step_overhead(), result.overlap_gain(),
                    1e2 * result.crc_cost());
}

}  // namespace zinc::bench
