#include "train/run_output.h"

#include <unistd.h>

#include <chrono>

#include "core/error.h"
#include "files/atomic_file.h"
#include "train/metrics/file_sinks.h"
#include "train/metrics/tensorboard_sink.h"
#include "train/metrics/wandb_sink.h"

namespace zinc::train {
namespace {

std::string monitor_folder(const MonitorConfig& monitor, const RunFolder& run) {
  const std::string base = monitor.output_path.empty() ? run.path() : monitor.output_path;
  return run.place_of(base + "/" + monitor.job_name);
}

// The curves, with the configuration as text beside them.
std::unique_ptr<TensorBoardSink> open_tensorboard(const std::string& folder,
                                                  const std::string& configuration,
                                                  const std::optional<FiguresSoFar>& so_far) {
  const double now = wall_time();
  auto sink = std::make_unique<TensorBoardSink>(folder, now, so_far);
  sink->write_text(now, so_far ? so_far->samples + 1 : 0, "configuration", configuration);
  return sink;
}

std::unique_ptr<WandbSink> open_wandb(const RunFolder& run, const WandbConfig& wandb,
                                      const std::string& configuration,
                                      const std::optional<FiguresSoFar>& so_far) {
  const double now = wall_time();
  const WandbRun described{.id = wandb_run_id(str(run.path(), ' ', now, ' ', getpid())),
                           .project = wandb.project,
                           .entity = wandb.team.value_or(""),
                           .group = wandb.group.value_or(""),
                           .name = files::file_name(run.path()),
                           .config = configuration,
                           .start_time = now};
  return std::make_unique<WandbSink>(run.place_of(run.path() + "/wandb"), described, so_far);
}

}  // namespace

std::vector<std::unique_ptr<MetricsSink>> open_sinks(const RunFolder& run, const Config& config,
                                                     const std::string& configuration,
                                                     const std::optional<FiguresSoFar>& so_far) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  sinks.push_back(std::make_unique<JsonLinesSink>(run.file("metrics.jsonl"), so_far));
  sinks.push_back(std::make_unique<CsvSink>(run.file("metrics.csv"), so_far));
  sinks.push_back(std::make_unique<SampleFileSink>(run.place_of(run.path()), so_far));
  sinks.push_back(open_tensorboard(run.place_of(run.path()), configuration, so_far));
  if (config.tensorboard.enabled) {
    sinks.push_back(
        open_tensorboard(monitor_folder(config.tensorboard, run), configuration, so_far));
  }
  if (config.csv_monitor.enabled) {
    sinks.push_back(
        std::make_unique<CsvMonitorSink>(monitor_folder(config.csv_monitor, run), so_far));
  }
  if (config.wandb.enabled) sinks.push_back(open_wandb(run, config.wandb, configuration, so_far));
  return sinks;
}

}  // namespace zinc::train
