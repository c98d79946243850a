#include "apps/run_output.h"

#include <chrono>

#include "train/files/atomic_file.h"
#include "train/metrics/file_sinks.h"
#include "train/metrics/tensorboard_sink.h"

namespace zinc::apps {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string monitor_folder(const train::MonitorConfig& monitor, const train::RunFolder& run) {
  const std::string base = monitor.output_path.empty() ? run.path() : monitor.output_path;
  return run.place_of(base + "/" + monitor.job_name);
}

std::vector<std::unique_ptr<train::MetricsSink>> open_sinks(const train::RunFolder& run,
                                                            const train::Config& config) {
  std::vector<std::unique_ptr<train::MetricsSink>> sinks;
  const auto mode = train::AppendFile::Mode::create;
  sinks.push_back(std::make_unique<train::JsonLinesSink>(run.file("metrics.jsonl"), mode));
  sinks.push_back(std::make_unique<train::CsvSink>(run.file("metrics.csv"), mode));
  sinks.push_back(std::make_unique<train::TensorBoardSink>(run.place_of(run.path()), wall_time()));
  if (config.tensorboard.enabled) {
    sinks.push_back(std::make_unique<train::TensorBoardSink>(
        monitor_folder(config.tensorboard, run), wall_time()));
  }
  if (config.csv_monitor.enabled) {
    sinks.push_back(
        std::make_unique<train::CsvMonitorSink>(monitor_folder(config.csv_monitor, run)));
  }
  return sinks;
}

}  // namespace

RunOutput open_output(const train::Config& config, const std::string& folder, bool force,
                      const comm::World& world) {
  RunOutput output;
  if (!world.is_main()) return output;
  output.run.emplace(train::RunFolder::create(folder, force));
  train::write_file_atomically(output.run->file("config.resolved.json"),
                               train::resolved_json(config, world.size()));
  output.sinks = open_sinks(*output.run, config);
  return output;
}

}  // namespace zinc::apps
