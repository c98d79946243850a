#include "train/metrics/tensorboard_sink.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>

#include "core/crc32c.h"
#include "core/error.h"
#include "train/files/atomic_file.h"

namespace zinc::train {
namespace {

static_assert(std::endian::native == std::endian::little);

template <class T>
void append_fixed(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

// Wire types of protocol buffers.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_key(std::string& out, uint32_t field, Wire wire) {
  append_varint(out, (field << 3) | wire);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

AppendFile create_event_file(const std::string& folder, double wall_time) {
  create_folders(folder);
  std::string time = concat(static_cast<int64_t>(wall_time));
  time.insert(0, time.size() < 10 ? 10 - time.size() : 0, '0');
  for (int number = 0;; ++number) {
    const std::string path = concat(folder, "/events.out.tfevents.", time, '.', host_name(), '.',
                                    static_cast<int64_t>(getpid()), '.', number);
    try {
      return AppendFile(path, AppendFile::Mode::create);
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
  std::string event;
  append_key(event, 1, kFixed64);
  append_fixed(event, wall_time);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string scalar;
  append_bytes(scalar, 1, tag);
  append_key(scalar, 2, kFixed32);
  append_fixed(scalar, value);
  std::string summary;
  append_bytes(summary, 1, scalar);
  std::string event;
  append_key(event, 1, kFixed64);
  append_fixed(event, wall_time);
  append_key(event, 2, kVarint);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);
  return event;
}

TensorBoardSink::TensorBoardSink(const std::string& folder, double wall_time)
    : file_(create_event_file(folder, wall_time)) {
  file_.append(event_record(version_event(wall_time)));
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
