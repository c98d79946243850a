#include "train/metrics/tensorboard_sink.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/crc32c.h"
#include "core/error.h"
#include "files/atomic_file.h"
#include "train/metrics/protobuf.h"

namespace zinc::train {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

files::AppendFile create_event_file(const std::string& folder, double wall_time) {
  files::create_folders(folder);
  std::string time = str(static_cast<int64_t>(wall_time));
  time.insert(0, time.size() < 10 ? 10 - time.size() : 0, '0');
  for (int number = 0;; ++number) {
    const std::string path = str(folder, "/events.out.tfevents.", time, '.', host_name(), '.',
                                 static_cast<int64_t>(getpid()), '.', number);
    try {
      return files::AppendFile(path, files::AppendFile::Mode::create);
    } catch (const IoError& error) {
      if (error.error_number() != EEXIST || number == 1000) throw;
    }
  }
}

}  // namespace

uint32_t masked_crc32c(std::string_view data) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(data)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string event_record(std::string_view data) {
  std::string record;
  append_fixed(record, static_cast<uint64_t>(data.size()));
  append_fixed(record, masked_crc32c(record));
  record += data;
  append_fixed(record, masked_crc32c(data));
  return record;
}

std::string version_event(double wall_time) {
  return Message().number(1, wall_time).bytes(3, "brain.Event:2").bytes();
}

std::string restart_event(double wall_time, int64_t step) {
  constexpr int64_t kStart = 1;  // SessionLog.START
  return Message()
      .number(1, wall_time)
      .integer(2, step)
      .message(7, Message().integer(1, kStart))
      .bytes();
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  const Message scalar = Message().bytes(1, tag).number(2, value);
  return Message()
      .number(1, wall_time)
      .integer(2, step)
      .message(5, Message().message(1, scalar))
      .bytes();
}

std::string text_event(double wall_time, int64_t step, std::string_view tag,
                       std::string_view text) {
  constexpr int64_t kStringType = 7;  // DT_STRING
  const Message plugin = Message().bytes(1, "text");
  const Message shape = Message().message(2, Message().integer(1, 1));
  const Message tensor = Message().integer(1, kStringType).message(2, shape).bytes(8, text);
  const Message value =
      Message().bytes(1, tag).message(8, tensor).message(9, Message().message(1, plugin));
  return Message()
      .number(1, wall_time)
      .integer(2, step)
      .message(5, Message().message(1, value))
      .bytes();
}

std::string verbatim_event(double wall_time, int64_t step, std::string_view tag,
                           std::string_view text) {
  std::string indented = "    ";  // code, in Markdown
  for (const char c : text) indented += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return text_event(wall_time, step, tag, indented);
}

std::string histogram_event(double wall_time, int64_t step, std::string_view tag,
                            const Histogram& histogram) {
  std::string ends, counts;
  const auto bucket = [&](int end, double count) {
    append_fixed(ends, bucket_end(end));
    append_fixed(counts, count);
  };
  int written = -1;
  for (int i = 0; i < kHistogramBuckets; ++i) {
    const double count = histogram.counts[static_cast<size_t>(i)];
    if (count == 0.0) continue;
    if (written < i - 1) bucket(i - 1, 0.0);
    bucket(i, count);
    written = i;
  }
  const Message figures = Message()
                              .number(1, histogram.least)
                              .number(2, histogram.most)
                              .number(3, histogram.count)
                              .number(4, histogram.sum)
                              .number(5, histogram.sum_of_squares)
                              .bytes(6, ends)
                              .bytes(7, counts);
  const Message value = Message().bytes(1, tag).message(5, figures);
  return Message()
      .number(1, wall_time)
      .integer(2, step)
      .message(5, Message().message(1, value))
      .bytes();
}

TensorBoardSink::TensorBoardSink(const std::string& folder, double wall_time,
                                 const std::optional<FiguresSoFar>& so_far)
    : file_(create_event_file(folder, wall_time)) {
  file_.append(event_record(version_event(wall_time)));
  if (so_far) file_.append(event_record(restart_event(wall_time, so_far->samples + 1)));
}

void TensorBoardSink::write_text(double wall_time, int64_t step, std::string_view tag,
                                 std::string_view text) {
  file_.append(event_record(verbatim_event(wall_time, step, tag, text)));
}

void TensorBoardSink::write_samples(const FigureTime& time, std::span<const SampleText> samples) {
  int number = 0;
  for (const SampleText& sample : samples) {
    write_text(time.wall_time, time.samples, str("samples/", ++number),
               sample.prompt + sample.text);
  }
}

void TensorBoardSink::write_histograms(const FigureTime& time,
                                       std::span<const Histogram> histograms) {
  std::string records;
  for (const Histogram& histogram : histograms) {
    if (histogram.count == 0.0) continue;
    records += event_record(
        histogram_event(time.wall_time, time.samples, str("weights/", histogram.name), histogram));
  }
  file_.append(records);
}

void TensorBoardSink::write(const StepMetrics& metrics) {
  std::string records;
  for (const Scalar& scalar : scalars(metrics)) {
    records += event_record(scalar_event(metrics.wall_time, metrics.samples, scalar.tag,
                                         static_cast<float>(scalar.value)));
  }
  file_.append(records);
}

}  // namespace zinc::train
