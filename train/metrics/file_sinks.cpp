#include "train/metrics/file_sinks.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "files/atomic_file.h"
#include "files/json/writer.h"

namespace zinc::train {
namespace {

void write_peaks(files::json::Writer& out, const MemoryReport& memory) {
  out.begin_object();
  for (int tier = 0; tier < kNumTiers; ++tier) {
    out.key(name_of(static_cast<Tier>(tier))).begin_object();
    for (int label = 0; label < kNumLabels; ++label) {
      const MemoryFigures& figures = memory.at(static_cast<Tier>(tier), static_cast<Label>(label));
      out.member(name_of(static_cast<Label>(label)), figures.peak);
    }
    out.member("total", memory.at(static_cast<Tier>(tier)).peak);
    out.end_object();
  }
  out.end_object();
}

void write_breakdown(files::json::Writer& out, const PhaseSeconds& seconds) {
  out.key("breakdown").begin_object();
  out.member("forward", seconds.forward);
  out.member("backward", seconds.backward);
  out.member("gradient_reduction", seconds.gradient_reduction);
  out.member("step", seconds.step);
  out.end_object();
}

std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  return str(value);
}

void write_swap(files::json::Writer& out, const offload::SwapTraffic& swap) {
  out.key("swap").begin_object();
  out.member("bytes_read", swap.bytes_read);
  out.member("bytes_written", swap.bytes_written);
  out.member("busy_seconds", 1e-9 * static_cast<double>(swap.busy_ns));
  out.member("stall_seconds", 1e-9 * static_cast<double>(swap.stall_ns));
  out.end_object();
}

}  // namespace

std::vector<Scalar> scalars(const StepMetrics& metrics) {
  std::vector<Scalar> result;
  if (metrics.step > 0) {
    result = {
        {"Train/Samples/train_loss", metrics.loss},
        {"Train/Samples/lr", metrics.lr},
        {"Train/Samples/loss_scale", metrics.loss_scale},
        {"Train/Samples/grad_norm", metrics.grad_norm},
        {"Train/Samples/tokens_per_second", metrics.tokens_per_second},
    };
  }
  if (metrics.val_loss) result.push_back({"Validation/Samples/val_loss", *metrics.val_loss});
  for (const SetLoss& set : metrics.validation) {
    if (!set.name.empty()) result.push_back({str("eval/", set.name, "/loss"), set.loss});
  }
  return result;
}

namespace {

void write_step(files::json::Writer& out, const StepMetrics& metrics) {
  out.member("loss", metrics.loss);
  out.member("lr", metrics.lr);
  out.member("grad_norm", metrics.grad_norm);
  out.member("loss_scale", metrics.loss_scale);
  out.member("skipped", metrics.skipped);
  if (metrics.skipped) out.member("overflow", metrics.overflow);
  out.member("tokens", metrics.tokens);
  out.member("seconds", metrics.seconds);
  out.member("tokens_per_second", metrics.tokens_per_second);
  out.key("peak_bytes");
  write_peaks(out, metrics.memory);
}

}  // namespace

std::string json_line(const StepMetrics& metrics) {
  files::json::Writer out;
  out.begin_object();
  out.member("step", metrics.step);
  if (metrics.step > 0) write_step(out, metrics);
  if (metrics.val_loss) out.member("val_loss", *metrics.val_loss);
  for (const SetLoss& set : metrics.validation) {
    if (!set.name.empty()) out.member(str("val_", set.name, "/loss"), set.loss);
  }
  if (metrics.breakdown) write_breakdown(out, *metrics.breakdown);
  if (metrics.swap) write_swap(out, *metrics.swap);
  out.end_object();
  return out.take();
}

namespace {

// The number that a line begins with, behind `before`; -1 where there is none.
int64_t leading_number(std::string_view line, std::string_view before) {
  if (!line.starts_with(before)) return -1;
  int64_t number = -1;
  std::from_chars(line.data() + before.size(), line.data() + line.size(), number);
  return number;
}

// Opens a file of lines that begin with a number, behind the last whose number is `last` at most.
files::AppendFile open_lines(const std::string& path, std::string_view before,
                             const std::optional<int64_t>& last) {
  if (!last) return files::AppendFile(path, files::AppendFile::Mode::create);
  files::drop_later_lines(
      path, [&](std::string_view line) { return leading_number(line, before) > *last; });
  return files::AppendFile(path, files::AppendFile::Mode::resume);
}

std::optional<int64_t> step_of(const std::optional<FiguresSoFar>& so_far) {
  return so_far ? std::optional(so_far->step) : std::nullopt;
}

}  // namespace

JsonLinesSink::JsonLinesSink(const std::string& path, const std::optional<FiguresSoFar>& so_far)
    : file_(open_lines(path, "{\"step\":", step_of(so_far))) {}

void JsonLinesSink::write(const StepMetrics& metrics) { file_.append(json_line(metrics) + '\n'); }

CsvSink::CsvSink(const std::string& path, const std::optional<FiguresSoFar>& so_far)
    : file_(open_lines(path, "", step_of(so_far))) {
  if (!file_.empty()) return;
  std::string header = "step,loss,lr,grad_norm,loss_scale,skipped,tokens,seconds,tokens_per_second";
  for (int tier = 0; tier < kNumTiers; ++tier) {
    header += str(",peak_bytes_", name_of(static_cast<Tier>(tier)));
  }
  file_.append(header + ",val_loss\n");
}

void CsvSink::write(const StepMetrics& m) {
  const std::string val_loss = m.val_loss ? csv_number(*m.val_loss) : std::string();
  if (m.step == 0) {
    constexpr size_t kColumnsBetween = 8 + static_cast<size_t>(kNumTiers);
    file_.append(str(0, std::string(kColumnsBetween + 1, ','), val_loss, '\n'));
    return;
  }
  std::string row =
      str(m.step, ',', csv_number(m.loss), ',', csv_number(m.lr), ',', csv_number(m.grad_norm), ',',
          csv_number(m.loss_scale), ',', m.skipped ? 1 : 0, ',', m.tokens, ',',
          csv_number(m.seconds), ',', csv_number(m.tokens_per_second));
  for (int tier = 0; tier < kNumTiers; ++tier) {
    row += str(',', m.memory.at(static_cast<Tier>(tier)).peak);
  }
  file_.append(str(row, ',', val_loss, '\n'));
}

namespace {

constexpr std::string_view kSampleHead = "--- step ";
constexpr std::string_view kSampleFile = "samples.txt";

std::string file_of(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  std::replace(name.begin(), name.end(), ' ', '_');
  return name + ".csv";
}

files::FileDescriptor opened_folder(const std::string& path) {
  files::FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw IoError("open folder", path, -1, errno);
  return folder;
}

// Cuts the file of samples before the first one of a later step. Gives the last step that stays.
int64_t drop_later_samples(const std::string& path, int64_t step) {
  int64_t newest = 0;
  files::drop_later_lines(path, [&](std::string_view line) {
    const int64_t of = leading_number(line, kSampleHead);
    if (of <= step) newest = std::max(newest, of);
    return of > step;
  });
  return newest;
}

bool is_curve(const std::string& file) {
  const bool is_ours = file.starts_with("Train_Samples_") ||
                       file.starts_with("Validation_Samples_") || file.starts_with("eval_");
  return is_ours && file.ends_with(".csv");
}

}  // namespace

CsvMonitorSink::CsvMonitorSink(std::string folder, const std::optional<FiguresSoFar>& so_far)
    : folder_(std::move(folder)) {
  files::create_folders(folder_);
  open_folder_ = opened_folder(folder_);
  if (!so_far) return;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_curve(name)) open_lines(str(folder_, '/', name), "", so_far->samples);
  }
  if (error) throw IoError("read folder", folder_, -1, error.value());
}

void CsvMonitorSink::write(const StepMetrics& metrics) {
  for (const Scalar& scalar : scalars(metrics)) {
    auto file = files_.find(scalar.tag);
    if (file == files_.end()) {
      const std::string name = file_of(scalar.tag);
      files::AppendFile opened(open_folder_, name, str(folder_, '/', name),
                               files::AppendFile::Mode::resume);
      if (opened.empty()) {
        opened.append(str("step,", scalar.tag.substr(scalar.tag.rfind('/') + 1), "\r\n"));
      }
      file = files_.emplace(scalar.tag, std::move(opened)).first;
    }
    file->second.append(str(metrics.samples, ',', csv_number(scalar.value), "\r\n"));
  }
}

SampleFileSink::SampleFileSink(const std::string& folder, const std::optional<FiguresSoFar>& so_far)
    : path_(str(folder, '/', kSampleFile)),
      open_folder_(opened_folder(folder)),
      goes_on_(so_far.has_value()) {
  if (so_far) newest_ = drop_later_samples(path_, so_far->step);
}

void SampleFileSink::write_samples(const FigureTime& time, std::span<const SampleText> samples) {
  if (samples.empty()) return;
  if (!file_) {
    // If a run was killed after it wrote these samples, and continues from the step before, the
    // file has them already.
    drop_later_samples(path_, time.step - 1);
    file_.emplace(open_folder_, std::string(kSampleFile), path_, files::AppendFile::Mode::resume);
  }
  std::string text;
  for (const SampleText& sample : samples) {
    text += str(kSampleHead, time.step, '\n', sample.prompt, sample.text, '\n');
  }
  file_->append(text);
}

}  // namespace zinc::train
