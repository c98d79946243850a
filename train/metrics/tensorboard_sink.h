// train/metrics/tensorboard_sink.h: TensorBoard event files, without TensorBoard.
//
// Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto. A record is
// its length (u64), the masked CRC-32C of the length, the data, the masked CRC-32C of the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "files/append_file.h"
#include "train/metrics/step_metrics.h"

namespace zinc::train {

// ((crc >> 15) | (crc << 17)) + 0xa282ead8 of the data's CRC-32C.
uint32_t masked_crc32c(std::string_view data);
// `data` framed as a record.
std::string event_record(std::string_view data);
// Protocol-buffer bytes of an Event: the one that opens a file, and one with a single scalar.
std::string version_event(double wall_time);
// Marks that the run continues at `step`: figures of later steps in the folder's other files are
// not shown.
std::string restart_event(double wall_time, int64_t step);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);
// An event with a text that TensorBoard's text plugin shows as Markdown: a tensor of one string
// (tensorboard/plugins/text/metadata.py).
std::string text_event(double wall_time, int64_t step, std::string_view tag, std::string_view text);
// The same for a text that is shown literally.
std::string verbatim_event(double wall_time, int64_t step, std::string_view tag,
                           std::string_view text);
// A HistogramProto (tensorflow/core/framework/summary.proto): empty buckets in a row are one.
std::string histogram_event(double wall_time, int64_t step, std::string_view tag,
                            const Histogram& histogram);

class TensorBoardSink final : public MetricsSink {
 public:
  // Makes the folder and in it the file events.out.tfevents.<wall_time>.<host>.<process>.0; where
  // that exists, the last number counts up. TensorBoard shows all files of a folder as one run.
  // With `so_far`, restart_event() behind its samples comes first.
  TensorBoardSink(const std::string& folder, double wall_time,
                  const std::optional<FiguresSoFar>& so_far = {});
  // The scalars of metrics/step_metrics.h over the number of samples. Values are f32, as the format
  // has them.
  void write(const StepMetrics& metrics) override;
  // Written as texts "samples/1", "samples/2", ..., one for each prompt.
  void write_samples(const FigureTime& time, std::span<const SampleText> samples) override;
  // Written as "weights/<name of the parameter>".
  void write_histograms(const FigureTime& time, std::span<const Histogram> histograms) override;
  void write_text(double wall_time, int64_t step, std::string_view tag, std::string_view text);

  const std::string& path() const { return file_.path(); }

 private:
  files::AppendFile file_;
};

}  // namespace zinc::train
