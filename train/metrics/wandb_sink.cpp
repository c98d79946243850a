#include "train/metrics/wandb_sink.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <exception>

#include "core/error.h"
#include "core/philox.h"
#include "train/files/atomic_file.h"
#include "train/json/parser.h"
#include "train/json/writer.h"
#include "train/metrics/protobuf.h"

namespace zinc::train {
namespace {

constexpr int64_t kWandbBlockBytes = 32768;
constexpr int64_t kPartHeaderBytes = 7;
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
  return json::write(json::Value(value));
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
    const json::Value values = json::parse(run.config, "configuration of the run");
    for (const json::Member& member : values.as_object()) {
      config.message(kItem, wandb_item(member.key, json::write(member.value)));
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
  const std::string own = concat(folder, '/', wandb_folder_name(run));
  create_folders(own);
  return concat(own, "/run-", run.id, ".wandb");
}

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
    const int64_t left = kWandbBlockBytes - (written + std::ssize(out)) % kWandbBlockBytes;
    if (left < kPartHeaderBytes) {
      out.append(static_cast<size_t>(left), '\0');
      continue;
    }
    const std::string_view part = record.substr(0, static_cast<size_t>(left - kPartHeaderBytes));
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
  return concat("offline-run-", std::string_view(text.data()), '-', run.id);
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

WandbSink::WandbSink(const std::string& folder, const WandbRun& run)
    : run_(run),
      file_(wandb_file(folder, run), AppendFile::Mode::create),
      exceptions_at_start_(std::uncaught_exceptions()),
      last_time_(run.start_time) {
  file_.append(kWandbFileHeader);
  written_ = std::ssize(kWandbFileHeader);
  append(wandb_record(records_, kHeader, wandb_header()));
  append(wandb_record(records_, kRun, wandb_run_message(run_)));
}

void WandbSink::append(std::string_view record) {
  const std::string framed = wandb_framed(record, written_);
  file_.append(framed);
  written_ += std::ssize(framed);
  ++records_;
}

void WandbSink::write(const StepMetrics& metrics) {
  last_time_ = metrics.wall_time;
  summary_["_step"] = concat(metrics.samples);
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
