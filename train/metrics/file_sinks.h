// train/metrics/file_sinks.h: metrics as text: JSON lines and two kinds of CSV.
//
// Each step is appended and handed to the system at once. Numbers are the shortest text that reads
// back to the same double.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "files/append_file.h"
#include "files/file_descriptor.h"
#include "train/metrics/step_metrics.h"

namespace zinc::train {

// One JSON object per step, on a line: step, loss, lr, grad_norm, loss_scale, skipped, tokens,
// seconds, tokens_per_second, peak_bytes {tier: {label: bytes, ..., total: bytes}, ...}; on a
// skipped step overflow, and where there was an evaluation val_loss. A figure that is no number (an
// overflow's norm) is null.
std::string json_line(const StepMetrics& metrics);

class JsonLinesSink final : public MetricsSink {
 public:
  // The file must not exist. With `so_far` it continues behind the line of that step, and later
  // lines of a run that was killed are dropped. The other sinks do the same.
  explicit JsonLinesSink(const std::string& path, const std::optional<FiguresSoFar>& so_far = {});
  void write(const StepMetrics& metrics) override;

 private:
  files::AppendFile file_;
};

// One table: a header, then a row per step, of step 0 with val_loss alone; val_loss is empty where
// there was no evaluation, and peak_bytes_<tier> are totals. Figures that are no numbers are nan,
// inf or -inf.
class CsvSink final : public MetricsSink {
 public:
  explicit CsvSink(const std::string& path, const std::optional<FiguresSoFar>& so_far = {});
  void write(const StepMetrics& metrics) override;

 private:
  files::AppendFile file_;
};

// DeepSpeed's csv_monitor: a file <folder>/<tag with _ for /, and for spaces>.csv per curve, with
// the header "step,<last part of the tag>" and rows "<samples>,<value>" that end in CR LF.
class CsvMonitorSink final : public MetricsSink {
 public:
  // Makes the folder: <output_path>/<job_name>. Goes on at the end of files that exist, and in the
  // folder where it is renamed.
  explicit CsvMonitorSink(std::string folder, const std::optional<FiguresSoFar>& so_far = {});
  void write(const StepMetrics& metrics) override;

 private:
  std::string folder_;
  files::FileDescriptor open_folder_;
  std::map<std::string, files::AppendFile> files_;
};

// The texts that the model wrote: "--- step 20", then prompt and text, for each. The file is there
// from the first one on, in the folder where that is renamed.
class SampleFileSink final : public MetricsSink {
 public:
  explicit SampleFileSink(const std::string& folder,
                          const std::optional<FiguresSoFar>& so_far = {});
  void write(const StepMetrics&) override {}
  void write_samples(const FigureTime& time, std::span<const SampleText> samples) override;
  bool lacks_samples_of(int64_t step) const override { return goes_on_ && newest_ < step; }

 private:
  std::string path_;
  files::FileDescriptor open_folder_;
  std::optional<files::AppendFile> file_;
  bool goes_on_;
  int64_t newest_ = 0;  // step whose samples the file had when it was opened
};

}  // namespace zinc::train
