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

#include "train/files/append_file.h"
#include "train/metrics/step_metrics.h"

namespace zinc::train {

// ((crc >> 15) | (crc << 17)) + 0xa282ead8 of the data's CRC-32C.
uint32_t masked_crc32c(std::string_view data);
// `data` framed as a record.
std::string event_record(std::string_view data);
// Protocol-buffer bytes of an Event: the one that opens a file, and one with a single scalar.
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

class TensorBoardSink final : public MetricsSink {
 public:
  // Makes the folder and in it the file events.out.tfevents.<wall_time>.<host>.<process>.0; where
  // that exists, the last number counts up. TensorBoard shows all files of a folder as one run.
  TensorBoardSink(const std::string& folder, double wall_time);
  // The scalars of metrics/step_metrics.h over the number of samples. Values are f32: that is what
  // the format holds.
  void write(const StepMetrics& metrics) override;

  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace zinc::train
