// A reader of TensorBoard's event files, written against the format and not against the writer.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "files/input_file.h"
#include "tests/files/scratch_folder.h"

namespace zinc::train {

struct Event {
  double wall_time = 0.0;
  int64_t step = 0;
  std::string version;
  std::string tag;  // of a scalar or a text
  float value = 0.0f;
  bool is_text = false;
  std::string text;
  // For a histogram: the number of values, their sum, and the buckets' ends and counts.
  double count = 0.0, sum = 0.0, sum_of_squares = 0.0, least = 0.0, most = 0.0;
  std::vector<double> ends, counts;
  bool restarts = false;  // earlier events of this step and later ones do not count
};

class EventBytes {
 public:
  explicit EventBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  bool empty() const { return at_ == bytes_.size(); }
  template <class T>
  T fixed() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string take(size_t count) {
    if (count > bytes_.size() - at_) throw std::runtime_error("record is cut short");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

inline std::vector<double> packed_doubles(const std::string& bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline void parse_histogram(Event& event, EventBytes fields) {
  double* const figures[] = {&event.least, &event.most, &event.count, &event.sum,
                             &event.sum_of_squares};
  while (!fields.empty()) {
    const uint64_t key = fields.varint();
    if ((key & 7) == 1) {
      *figures[(key >> 3) - 1] = fields.fixed<double>();
    } else {
      EXPECT_TRUE(key == ((6 << 3) | 2) || key == ((7 << 3) | 2)) << key;
      (key >> 3 == 6 ? event.ends : event.counts) = packed_doubles(fields.take(fields.varint()));
    }
  }
}

// The string of a tensor.
inline std::string parse_text(EventBytes fields) {
  std::string text;
  while (!fields.empty()) {
    const uint64_t key = fields.varint();
    if (key == ((1 << 3) | 0)) {
      fields.varint();
    } else {
      std::string bytes = fields.take(fields.varint());
      if (key == ((8 << 3) | 2)) text = std::move(bytes);
    }
  }
  return text;
}

inline Event parse_event(const std::string& data) {
  Event event;
  EventBytes fields(data);
  while (!fields.empty()) {
    const uint64_t key = fields.varint();
    if (key == ((1 << 3) | 1)) {
      event.wall_time = fields.fixed<double>();
    } else if (key == ((2 << 3) | 0)) {
      event.step = static_cast<int64_t>(fields.varint());
    } else if (key == ((3 << 3) | 2)) {
      event.version = fields.take(fields.varint());
    } else if (key == ((5 << 3) | 2)) {
      EventBytes summary(fields.take(fields.varint()));
      EXPECT_EQ(summary.varint(), (1u << 3) | 2u);
      EventBytes value(summary.take(summary.varint()));
      EXPECT_TRUE(summary.empty());
      while (!value.empty()) {
        const uint64_t inner = value.varint();
        if (inner == ((1 << 3) | 2)) event.tag = value.take(value.varint());
        if (inner == ((2 << 3) | 5)) event.value = value.fixed<float>();
        if (inner == ((5 << 3) | 2)) parse_histogram(event, EventBytes(value.take(value.varint())));
        if (inner == ((9 << 3) | 2)) value.take(value.varint());
        if (inner != ((8 << 3) | 2)) continue;
        event.is_text = true;
        event.text = parse_text(EventBytes(value.take(value.varint())));
      }
    } else if (key == ((7 << 3) | 2)) {
      EXPECT_EQ(fields.take(fields.varint()), "\x08\x01");  // SessionLog.START
      event.restarts = true;
    } else {
      ADD_FAILURE() << "unknown field key " << key;
      break;
    }
  }
  return event;
}

inline uint32_t unmask(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated << 15) | (rotated >> 17);
}

inline std::vector<Event> read_events(const std::string& path) {
  std::vector<Event> events;
  EventBytes file(files::read_whole_file(path));
  while (!file.empty()) {
    const std::string length = file.take(8);
    EXPECT_EQ(unmask(file.fixed<uint32_t>()), crc32c(std::as_bytes(std::span(length))));
    const std::string data = file.take(EventBytes(length).fixed<uint64_t>());
    EXPECT_EQ(unmask(file.fixed<uint32_t>()), crc32c(std::as_bytes(std::span(data))));
    events.push_back(parse_event(data));
  }
  return events;
}

}  // namespace zinc::train
