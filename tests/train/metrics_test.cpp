#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "core/crc32c.h"
#include "core/error.h"
#include "files/atomic_file.h"
#include "files/json/parser.h"
#include "tests/files/scratch_folder.h"
#include "tests/train/event_file.h"
#include "train/metrics/file_sinks.h"
#include "train/metrics/tensorboard_sink.h"

namespace zinc::train {
namespace metrics_test {

using testing::ElementsAre;

StepMetrics example() {
  StepMetrics m{.step = 12,
                .loss = 0.1 + 0.2,
                .lr = 1e-4 / 3,
                .grad_norm = 5e-324,
                .loss_scale = 65536.0,
                .skipped = false,
                .tokens = 8192,
                .seconds = 0.1423,
                .tokens_per_second = 8192 / 0.1423,
                .samples = 384,
                .wall_time = 1700000000.25};
  m.memory.by_label[0][0].peak = 4096;
  m.memory.by_label[0][3].peak = 1 << 20;
  m.memory.total[0].peak = (1 << 20) + 4096;
  m.memory.total[1].peak = 77;
  return m;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::string text = files::read_whole_file(path);
  for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    lines.push_back(text.substr(0, end));
  }
  EXPECT_EQ(text, "") << "a line without an end";
  return lines;
}

TEST(JsonLine, HasTheFieldsInOrder) {
  std::vector<std::string> keys;
  const files::json::Value line = files::json::parse(json_line(example()), "line");
  for (const files::json::Member& member : line.as_object()) keys.push_back(member.key);
  EXPECT_THAT(keys, ElementsAre("step", "loss", "lr", "grad_norm", "loss_scale", "skipped",
                                "tokens", "seconds", "tokens_per_second", "peak_bytes"));
  EXPECT_FALSE(line.at("skipped").as_bool());
  EXPECT_EQ(line.at("step").as_int64(), 12);
  EXPECT_EQ(line.at("tokens").as_int64(), 8192);
  const files::json::Value& peaks = line.at("peak_bytes");
  EXPECT_EQ(peaks.size(), 3U);
  EXPECT_EQ(peaks.at("device").size(), 8U);
  EXPECT_EQ(peaks.at("device").at("parameters").as_int64(), 4096);
  EXPECT_EQ(peaks.at("device").at("activations").as_int64(), 1 << 20);
  EXPECT_EQ(peaks.at("device").at("total").as_int64(), (1 << 20) + 4096);
  EXPECT_EQ(peaks.at("pinned_host").at("total").as_int64(), 77);
  EXPECT_EQ(peaks.at("nvme").at("staging").as_int64(), 0);
}

TEST(JsonLine, SaysWhatWasSwapped) {
  StepMetrics m = example();
  m.swap = offload::SwapTraffic{
      .bytes_read = 4096, .bytes_written = 8192, .busy_ns = 250'000'000, .stall_ns = 125'000'000};
  const files::json::Value line = files::json::parse(json_line(m), "line");
  const files::json::Value& swap = line.at("swap");
  EXPECT_EQ(swap.at("bytes_read").as_int64(), 4096);
  EXPECT_EQ(swap.at("bytes_written").as_int64(), 8192);
  EXPECT_DOUBLE_EQ(swap.at("busy_seconds").as_double(), 0.25);
  EXPECT_DOUBLE_EQ(swap.at("stall_seconds").as_double(), 0.125);
}

TEST(JsonLine, Numbers_ReadBackToTheSameBits) {
  StepMetrics m = example();
  for (const double value : {0.1 + 0.2, 5e-324, 1.7976931348623157e308, 1.0 / 3, 100.0, 1e22, -0.0,
                             static_cast<double>(3.7812345f), std::nextafter(1.0, 2.0)}) {
    m.loss = m.lr = m.grad_norm = m.seconds = m.tokens_per_second = value;
    m.val_loss = value;
    const files::json::Value line = files::json::parse(json_line(m), "line");
    for (const char* key :
         {"loss", "lr", "grad_norm", "seconds", "tokens_per_second", "val_loss"}) {
      EXPECT_EQ(std::bit_cast<uint64_t>(line.at(key).as_double()), std::bit_cast<uint64_t>(value))
          << key << ' ' << value;
    }
  }
}

TEST(JsonLine, WhatIsNoNumber_IsNull) {
  StepMetrics m = example();
  m.loss = std::nan("");
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.skipped = true;
  m.overflow = "h.3.mlp.c_fc.weight";
  const files::json::Value line = files::json::parse(json_line(m), "line");
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("grad_norm").is_null());
  EXPECT_TRUE(line.at("skipped").as_bool());
  EXPECT_EQ(line.at("overflow").as_string(), "h.3.mlp.c_fc.weight");
}

TEST(JsonLinesSink, AppendsALineAStepAtOnce) {
  const files::ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  JsonLinesSink sink(path);
  StepMetrics m = example();
  sink.write(m);
  EXPECT_EQ(lines_of(path).size(), 1U);  // before the sink goes
  m.val_loss = 1.5;
  sink.write(m);
  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], json_line(example()));
  EXPECT_EQ(files::json::parse(lines[1], "line").at("val_loss").as_double(), 1.5);
  EXPECT_THROW(JsonLinesSink{path}, IoError);
}

TEST(CsvSink, WritesATable) {
  const files::ScratchFolder folder;
  const std::string path = folder / "metrics.csv";
  StepMetrics m = example();
  m.tokens_per_second = 57569.0;
  CsvSink(path).write(m);
  m.val_loss = 1.25;
  m.loss = std::nan("");
  m.grad_norm = -std::numeric_limits<double>::infinity();
  m.skipped = true;
  CsvSink(path, FiguresSoFar{.step = m.step}).write(m);
  EXPECT_THAT(
      lines_of(path),
      ElementsAre("step,loss,lr,grad_norm,loss_scale,skipped,tokens,seconds,tokens_per_second,"
                  "peak_bytes_device,peak_bytes_pinned_host,peak_bytes_nvme,val_loss",
                  "12,0.30000000000000004,3.3333333333333335e-05,5e-324,65536,0,8192,0.1423,57569,"
                  "1052672,77,0,",
                  "12,nan,3.3333333333333335e-05,-inf,65536,1,8192,0.1423,57569,1052672,77,0,"
                  "1.25"));
}

TEST(CsvMonitorSink, LaysFilesOutAsDeepSpeedDoes) {
  const files::ScratchFolder folder;
  const std::string monitor = folder / "logs/job";
  CsvMonitorSink sink(monitor);
  StepMetrics m = example();
  sink.write(m);
  m.samples = 416;
  m.loss = 0.25;
  m.val_loss = 2.0;
  sink.write(m);
  EXPECT_THAT(files::names_in(monitor),
              ElementsAre("Train_Samples_grad_norm.csv", "Train_Samples_loss_scale.csv",
                          "Train_Samples_lr.csv", "Train_Samples_tokens_per_second.csv",
                          "Train_Samples_train_loss.csv", "Validation_Samples_val_loss.csv"));
  EXPECT_EQ(files::read_whole_file(monitor + "/Train_Samples_train_loss.csv"),
            "step,train_loss\r\n384,0.30000000000000004\r\n416,0.25\r\n");
  EXPECT_EQ(files::read_whole_file(monitor + "/Validation_Samples_val_loss.csv"),
            "step,val_loss\r\n416,2\r\n");
  CsvMonitorSink(monitor).write(m);  // a second run goes on, without a second header
  EXPECT_EQ(files::read_whole_file(monitor + "/Validation_Samples_val_loss.csv"),
            "step,val_loss\r\n416,2\r\n416,2\r\n");
}

// The published example of TensorFlow's crc32c_test.
TEST(TensorBoard, MaskedCrc_IsTheKnownOne) {
  EXPECT_EQ(masked_crc32c("\x1a\x11"
                          "CRC test, one two"),
            0x5794d08au);
}

// Summary.Value of tag, tensor (string, shape [1], the text) and the name of the plugin: the fields
// of summary.proto, tensor.proto and tensor_shape.proto, as TensorBoard 2.21 reads them back.
TEST(TensorBoard, TextEvent_IsATensorOfOneString) {
  const std::string value = std::string("\x0a\x01t") +       // tag
                            "\x42\x0e" +                     // tensor
                            "\x08\x07" +                     // DT_STRING
                            "\x12\x04\x12\x02\x08\x01" +     // one dimension of size 1
                            "\x42\x04text" +                 // the text
                            "\x4a\x08\x0a\x06\x0a\x04text";  // metadata, plugin, name
  const std::string event = text_event(0.5, 3, "t", "text");
  EXPECT_EQ(event.substr(9), "\x10\x03\x2a" + std::string(1, static_cast<char>(value.size() + 2)) +
                                 "\x0a" + std::string(1, static_cast<char>(value.size())) + value);
}

TEST(TensorBoardSink, File_ReadsBack) {
  const files::ScratchFolder folder;
  TensorBoardSink sink(folder / "tb", 1700000000.5);
  StepMetrics m = example();
  m.loss = 2.0 / 3;
  m.val_loss = 0.5;
  m.samples = int64_t{1} << 40;
  sink.write(m);
  const std::vector<Event> events = read_events(sink.path());
  ASSERT_EQ(events.size(), 7U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1700000000.5);
  const std::vector<std::string> tags = {
      "Train/Samples/train_loss",        "Train/Samples/lr",
      "Train/Samples/loss_scale",        "Train/Samples/grad_norm",
      "Train/Samples/tokens_per_second", "Validation/Samples/val_loss"};
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(events[i].tag, tags[i - 1]);
    EXPECT_EQ(events[i].step, int64_t{1} << 40);
    EXPECT_EQ(events[i].wall_time, 1700000000.25);
  }
  EXPECT_EQ(events[1].value, static_cast<float>(2.0 / 3));
  EXPECT_EQ(events[3].value, 65536.0f);
  EXPECT_EQ(events[6].value, 0.5f);
}

TEST(Histogram, CountsEachValueInItsBucket) {
  const std::vector<float> values = {0.0f,  -0.0f, 1e-20f, 1.0f,   1.24f, 1.25f,
                                     -1.0f, -1.1f, 1e30f,  -1e30f, 3.25f, 3e-12f};
  Histogram histogram{.name = "w"};
  histogram.add(ConstView(values.data(), DType::f32, Shape{std::ssize(values)}));
  const std::vector<float> no_numbers = {std::numeric_limits<float>::quiet_NaN(),
                                         std::numeric_limits<float>::infinity()};
  histogram.add(ConstView(no_numbers.data(), DType::f32, Shape{2}));
  EXPECT_EQ(histogram.count, 12.0);
  EXPECT_EQ(histogram.least, -1e30f);
  EXPECT_EQ(histogram.most, 1e30f);
  const auto between = [&](double begin, double end) {  // both are ends of buckets
    double count = 0.0;
    for (int i = 0; i < kHistogramBuckets; ++i) {
      const bool begins_inside = i > 0 && bucket_end(i - 1) >= begin;
      if (begins_inside && bucket_end(i) <= end) count += histogram.counts[static_cast<size_t>(i)];
    }
    return count;
  };
  EXPECT_EQ(between(0.0, std::ldexp(1.0, -40)), 3.0);
  EXPECT_EQ(between(1.0, 1.25), 2.0);
  EXPECT_EQ(between(1.25, 1.5), 1.0);
  EXPECT_EQ(between(-1.25, -1.0), 2.0);
  EXPECT_EQ(between(3.0, 3.5), 1.0);
  EXPECT_EQ(between(std::ldexp(1.0, 60), std::numeric_limits<double>::max()), 1.0);
  EXPECT_EQ(histogram.counts.front(), 1.0);
  for (int i = 1; i < kHistogramBuckets; ++i) EXPECT_LT(bucket_end(i - 1), bucket_end(i));
}

// TensorBoard takes bucket i to reach from the end of bucket i - 1 to its own.
TEST(TensorBoardSink, Histograms_ReadBack) {
  const files::ScratchFolder folder;
  const std::vector<double> values = {-2.0, 0.5, 0.51, 7.0};
  std::vector<Histogram> histograms = {{.name = "h.0.weight"}, {.name = "empty"}};
  histograms[0].add(ConstView(values.data(), DType::f64, Shape{4}));
  TensorBoardSink sink(folder / "tb", 1.0);
  sink.write_histograms({.step = 3, .samples = 96, .wall_time = 2.5}, histograms);
  const std::vector<Event> events = read_events(sink.path());
  ASSERT_EQ(events.size(), 2U);
  const Event& event = events[1];
  EXPECT_EQ(event.tag, "weights/h.0.weight");
  EXPECT_EQ(event.step, 96);
  EXPECT_EQ(event.wall_time, 2.5);
  EXPECT_EQ(event.count, 4.0);
  EXPECT_EQ(event.sum, 6.01);
  EXPECT_DOUBLE_EQ(event.sum_of_squares, 4.0 + 0.25 + 0.51 * 0.51 + 49.0);
  EXPECT_EQ(event.least, -2.0);
  EXPECT_EQ(event.most, 7.0);
  EXPECT_THAT(event.counts, ElementsAre(0.0, 1.0, 0.0, 2.0, 0.0, 1.0));
  EXPECT_THAT(event.ends, ElementsAre(-2.5, -2.0, 0.5, 0.625, 7.0, 8.0));
}

TEST(TensorBoardSink, Samples_AreTextsThatAreNoMarkdown) {
  const files::ScratchFolder folder;
  TensorBoardSink sink(folder / "tb", 1.0);
  const std::vector<SampleText> samples = {{"# a", " b\n* c"}, {"", "d"}};
  sink.write_samples({.step = 3, .samples = 96, .wall_time = 2.5}, samples);
  const std::vector<Event> events = read_events(sink.path());
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1].tag, "samples/1");
  EXPECT_EQ(events[1].step, 96);
  EXPECT_TRUE(events[1].is_text);
  EXPECT_EQ(events[1].text, "    # a b\n    * c");
  EXPECT_EQ(events[2].tag, "samples/2");
}

TEST(SampleFileSink, KeepsWhatBelongsToTheStepsSoFar) {
  const files::ScratchFolder folder;
  const std::string path = folder / "samples.txt";
  const std::vector<SampleText> two = {{"In", " the\n"}, {"", "end"}};
  {
    SampleFileSink sink(folder.path());
    sink.write_samples({.step = 0}, {});
    EXPECT_FALSE(files::file_exists(path));
    for (const int64_t step : {2, 4, 6}) sink.write_samples({.step = step}, two);
  }
  const auto text_of = [](int step) {
    return str("--- step ", step, "\nIn the\n\n--- step ", step, "\nend\n");
  };
  EXPECT_EQ(files::read_whole_file(path), text_of(2) + text_of(4) + text_of(6));
  SampleFileSink later(folder.path(), FiguresSoFar{.step = 4, .samples = 8});
  EXPECT_EQ(files::read_whole_file(path), text_of(2) + text_of(4));
  later.write_samples({.step = 4}, two);  // the run ended there, and is asked again
  EXPECT_EQ(files::read_whole_file(path), text_of(2) + text_of(4));
}

TEST(TensorBoardSink, SecondFile_TakesTheNextNumber) {
  const files::ScratchFolder folder;
  const TensorBoardSink first(folder / "tb", 1234.0), second(folder / "tb", 1234.0);
  const std::vector<std::string> names = files::names_in(folder / "tb");
  ASSERT_EQ(names.size(), 2U);
  EXPECT_THAT(names[0], testing::StartsWith("events.out.tfevents.0000001234."));
  EXPECT_THAT(names[0], testing::EndsWith(".0"));
  EXPECT_THAT(names[1], testing::EndsWith(".1"));
}

}  // namespace metrics_test
}  // namespace zinc::train
