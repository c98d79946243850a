#include "train/metrics/wandb_sink.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <exception>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "core/philox.h"
#include "files/atomic_file.h"
#include "files/input_file.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "train/metrics/protobuf.h"

namespace zinc::train {
namespace {

constexpr size_t kWandbBlockBytes = 32768;
constexpr size_t kPartHeaderBytes = 7;
constexpr std::string_view kWandbFileHeader{":W&B\xE1\xBE\x00", 7};

// Numbers of fields of wandb_internal.Record and of what lies in it.
enum RecordField : uint32_t {
  kNumber = 1,
  kHistory = 2,
  kSummary = 3,
  kRun = 17,
  kExit = 18,
  kHeader = 21
};
enum RunField : uint32_t {
  kRunId = 1,
  kEntity = 2,
  kProject = 3,
  kConfig = 4,
  kGroup = 6,
  kDisplayName = 8,
  kStartTime = 17
};
constexpr uint32_t kItem = 1;  // of history, summary and configuration
constexpr uint32_t kItemKey = 1, kItemValue = 16;
constexpr uint32_t kHistoryStep = 2;
constexpr uint32_t kExitCode = 1, kRuntime = 2;

Message wandb_item(std::string_view key, std::string_view json) {
  return Message().bytes(kItemKey, key).bytes(kItemValue, json);
}

std::string wandb_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return files::json::write(files::json::Value(value));
}

std::string wandb_record(int64_t number, uint32_t kind, const Message& message) {
  return Message().integer(kNumber, number).message(kind, message).bytes();
}

Message wandb_header() {
  // The version that wrote the file, and the oldest that reads it.
  const Message version = Message().bytes(1, "0.19.0").bytes(2, "0.12.0");
  return Message().message(1, version);
}

Message wandb_run_message(const WandbRun& run) {
  Message message;
  message.bytes(kRunId, run.id);
  if (!run.entity.empty()) message.bytes(kEntity, run.entity);
  message.bytes(kProject, run.project);
  if (!run.config.empty()) {
    Message config;
    const files::json::Value values = files::json::parse(run.config, "configuration of the run");
    for (const files::json::Member& member : values.as_object()) {
      config.message(kItem, wandb_item(member.key, files::json::write(member.value)));
    }
    message.message(kConfig, config);
  }
  if (!run.group.empty()) message.bytes(kGroup, run.group);
  if (!run.name.empty()) message.bytes(kDisplayName, run.name);
  const double seconds = std::floor(run.start_time);
  const auto nanoseconds = static_cast<int64_t>(1e9 * (run.start_time - seconds));
  message.message(kStartTime,
                  Message().integer(1, static_cast<int64_t>(seconds)).integer(2, nanoseconds));
  return message;
}

std::string wandb_file(const std::string& folder, const WandbRun& run) {
  const std::string own = str(folder, '/', wandb_folder_name(run));
  files::create_folders(own);
  return str(own, "/run-", run.id, ".wandb");
}

// The first field of that number in a message: a varint, or the bytes of a string or message.
// Nothing if there is none, or if the message is cut short.
struct Field {
  uint64_t number = 0;
  std::string_view bytes{};
};

std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<Field> field_of(std::string_view message, uint32_t wanted) {
  constexpr uint64_t kVarint = 0, kBytes = 2;
  while (!message.empty()) {
    const std::optional<uint64_t> key = take_varint(message);
    if (!key || ((*key & 7) != kVarint && (*key & 7) != kBytes)) return std::nullopt;
    const std::optional<uint64_t> number = take_varint(message);
    if (!number) return std::nullopt;
    Field field{.number = *number};
    if ((*key & 7) == kBytes) {
      if (*number > message.size()) return std::nullopt;
      field.bytes = message.substr(0, *number);
      message.remove_prefix(*number);
    }
    if (*key >> 3 == wanted) return field;
  }
  return std::nullopt;
}

bool has_field(std::string_view record, uint32_t field) {
  return field_of(record, field).has_value();
}

uint64_t number_in(std::string_view message, uint32_t field) {
  const std::optional<Field> found = field_of(message, field);
  return found ? found->number : 0;
}

std::optional<int64_t> step_of_history(std::string_view record) {
  const std::optional<Field> history = field_of(record, kHistory);
  if (!history) return std::nullopt;
  const std::optional<Field> step = field_of(history->bytes, kHistoryStep);
  return step ? std::optional(static_cast<int64_t>(number_in(step->bytes, 1))) : std::nullopt;
}

double start_time_of(std::string_view record) {
  const std::optional<Field> run = field_of(record, kRun);
  const std::optional<Field> time = run ? field_of(run->bytes, kStartTime) : std::nullopt;
  if (!time) return 0.0;
  return static_cast<double>(number_in(time->bytes, 1)) +
         1e-9 * static_cast<double>(number_in(time->bytes, 2));
}

// The records of a file, up to one that is not whole.
class WandbRecords {
 public:
  explicit WandbRecords(std::string_view file) : file_(file) {
    if (file.starts_with(kWandbFileHeader)) at_ = kWandbFileHeader.size();
  }
  // Behind the last record.
  int64_t at() const { return static_cast<int64_t>(at_); }

  std::optional<std::string> next() {
    constexpr uint8_t kWhole = 1, kLast = 4;
    if (at_ == 0) return std::nullopt;
    std::string record;
    for (size_t at = at_;;) {
      const size_t left = kWandbBlockBytes - at % kWandbBlockBytes;
      if (left < kPartHeaderBytes) {
        at += left;
        continue;
      }
      if (file_.size() < at + kPartHeaderBytes) return std::nullopt;
      const auto byte = [&](size_t i) { return static_cast<unsigned char>(file_[at + i]); };
      const uint32_t crc = byte(0) | byte(1) << 8 | byte(2) << 16 | uint32_t{byte(3)} << 24;
      const size_t length = byte(4) | static_cast<size_t>(byte(5)) << 8;
      const uint8_t type = byte(6);
      if (file_.size() - at - kPartHeaderBytes < length ||
          crc32_ieee(file_.substr(at + 6, 1 + length)) != crc) {
        return std::nullopt;
      }
      record += file_.substr(at + kPartHeaderBytes, length);
      at += kPartHeaderBytes + length;
      if (type == kWhole || type == kLast) {
        at_ = at;
        return record;
      }
    }
  }

 private:
  std::string_view file_;
  size_t at_ = 0;  // 0: this is no such file
};

constexpr std::array<uint32_t, 256> crc32_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    table[byte] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32_ieee(std::string_view data) {
  static constexpr std::array<uint32_t, 256> kTable = crc32_table();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : data) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::string wandb_framed(std::string_view record, int64_t written) {
  enum Part : uint8_t { kWhole = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
  std::string out;
  bool begun = false;
  do {
    const size_t at = static_cast<size_t>(written) + out.size();
    const size_t left = kWandbBlockBytes - at % kWandbBlockBytes;
    if (left < kPartHeaderBytes) {
      out.append(left, '\0');
      continue;
    }
    const std::string_view part = record.substr(0, left - kPartHeaderBytes);
    record.remove_prefix(part.size());
    const bool ends = record.empty();
    const Part type = begun ? (ends ? kLast : kMiddle) : (ends ? kWhole : kFirst);
    std::string checked(1, static_cast<char>(type));
    checked += part;
    append_fixed(out, crc32_ieee(checked));
    append_fixed(out, static_cast<uint16_t>(part.size()));
    out += checked;
    begun = true;
  } while (!record.empty() || !begun);
  return out;
}

std::string wandb_folder_name(const WandbRun& run) {
  const auto seconds = static_cast<std::time_t>(run.start_time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &utc);
  return str("offline-run-", std::string_view(text.data()), '-', run.id);
}

std::string wandb_run_id(std::string_view seed) {
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyz0123456789";
  uint64_t hash = hash_text(seed);
  std::string id;
  for (int i = 0; i < 8; ++i) {
    id += kCharacters[hash % kCharacters.size()];
    hash /= kCharacters.size();
  }
  return id;
}

WandbSink::WandbSink(const std::string& folder, const WandbRun& run,
                     const std::optional<FiguresSoFar>& so_far)
    : WandbSink(folder, run, so_far ? find_kept(folder, *so_far) : Kept()) {}

WandbSink::WandbSink(const std::string& folder, const WandbRun& run, const Kept& kept)
    : run_(run),
      file_(kept.bytes > 0 ? kept.path : wandb_file(folder, run),
            kept.bytes > 0 ? files::AppendFile::Mode::resume : files::AppendFile::Mode::create),
      written_(kept.bytes),
      records_(kept.records),
      exceptions_at_start_(std::uncaught_exceptions()),
      last_time_(run.start_time) {
  if (kept.bytes > 0) {
    run_.start_time = kept.start_time;
    return;
  }
  file_.append(kWandbFileHeader);
  written_ = std::ssize(kWandbFileHeader);
  append(wandb_record(records_, kHeader, wandb_header()));
  append(wandb_record(records_, kRun, wandb_run_message(run_)));
}

// Folders are named by the time at which their run began. One whose file was cut short within its
// first two records, or is none, is passed by: the run begins anew beside it.
WandbSink::Kept WandbSink::find_kept(const std::string& folder, const FiguresSoFar& so_far) {
  constexpr int64_t kMaxFileBytes = int64_t{4} << 30;
  std::string newest;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("offline-run-")) newest = std::max(newest, name);
  }
  if (error && error.value() != ENOENT) throw IoError("read folder", folder, -1, error.value());
  if (newest.empty()) return {};
  const std::string id = newest.substr(newest.rfind('-') + 1);
  Kept kept{.path = str(folder, '/', newest, "/run-", id, ".wandb")};
  if (!files::file_exists(kept.path)) return {};
  const std::string text = files::read_text_file(kept.path, kMaxFileBytes);
  WandbRecords records(text);
  while (const std::optional<std::string> record = records.next()) {
    const std::optional<int64_t> step = step_of_history(*record);
    if ((step && *step > so_far.samples) || has_field(*record, kExit)) break;
    if (kept.records == 1) kept.start_time = start_time_of(*record);
    ++kept.records;
    kept.bytes = records.at();
  }
  if (kept.records < 2) return {};
  std::filesystem::resize_file(kept.path, static_cast<uintmax_t>(kept.bytes), error);
  if (error) throw IoError("cut", kept.path, kept.bytes, error.value());
  return kept;
}

void WandbSink::append(std::string_view record) {
  const std::string framed = wandb_framed(record, written_);
  file_.append(framed);
  written_ += std::ssize(framed);
  ++records_;
}

void WandbSink::write(const StepMetrics& metrics) {
  last_time_ = metrics.wall_time;
  summary_["_step"] = str(metrics.samples);
  summary_["_timestamp"] = wandb_json(metrics.wall_time);
  summary_["_runtime"] = wandb_json(metrics.wall_time - run_.start_time);
  Message history;
  for (const char* key : {"_step", "_timestamp", "_runtime"}) {
    history.message(kItem, wandb_item(key, summary_.at(key)));
  }
  for (const Scalar& scalar : scalars(metrics)) {
    const std::string value = wandb_json(scalar.value);
    summary_[scalar.tag] = value;
    history.message(kItem, wandb_item(scalar.tag, value));
  }
  history.message(kHistoryStep, Message().integer(1, metrics.samples));
  append(wandb_record(records_, kHistory, history));
  // A run that is killed has a summary as old as its last evaluation.
  if (metrics.val_loss) write_summary();
}

void WandbSink::write_summary() {
  Message summary;
  for (const auto& [key, value] : summary_) summary.message(kItem, wandb_item(key, value));
  append(wandb_record(records_, kSummary, summary));
}

WandbSink::~WandbSink() {
  const int code = std::uncaught_exceptions() > exceptions_at_start_ ? 1 : 0;
  try {
    if (!summary_.empty()) write_summary();
    const auto runtime = static_cast<int64_t>(last_time_ - run_.start_time);
    append(wandb_record(records_, kExit,
                        Message().integer(kExitCode, code).integer(kRuntime, runtime)));
  } catch (...) {
    // The file ends at the last whole record, which its readers expect of a run that was killed.
  }
}

}  // namespace zinc::train
