// tests/core/recording_stream.h: an inline stream that counts what is asked of it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/stream.h"

namespace zinc {

class RecordingStream final : public Stream {
 public:
  explicit RecordingStream(std::string_view name) : Stream(StreamKind::worker, name, 1) {}

  void enqueue(const char*, Task task) override { task(); }
  Event record() override {
    ++num_records;
    recorded.push_back(std::make_shared<Happened>());
    return Event(recorded.back());
  }
  void wait(const Event& event) override { waited_for.push_back(event.state()); }
  void synchronize() override {}

  int num_records = 0;
  std::vector<std::shared_ptr<Event::State>> recorded;
  std::vector<std::shared_ptr<Event::State>> waited_for;

 private:
  struct Happened final : Event::State {
    bool query() override { return true; }
    void wait() override {}
  };
};

}  // namespace zinc
