// tests/emulator/capture.h: what streams were told while they captured, to be told again.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/executor.h"

namespace zinc::emulator {

// Gives the task of one launch, in the order of the capture, by the thread that launches.
using MakeTask = std::function<Stream::Task()>;

// The calls of a stream, which is lane 0, and of the streams that joined it.
class Capture {
 public:
  // A point in a lane.
  struct Mark {
    size_t number = 0;
    std::vector<size_t> seen;  // by lane: the calls that come before
  };

  Capture() { join(); }
  size_t join();  // gives the new lane
  void add(size_t lane, const char* label, MakeTask make);
  Mark record(size_t lane);
  // `happens` false: a mistake, by which the lane does not wait after all.
  void wait(size_t lane, const Mark& mark, bool happens);
  // Lane 0 comes behind every other one.
  bool is_joined() const;

 private:
  friend class CaptureLanes;
  enum class Kind { task, record, wait };
  struct Call {
    Kind kind = Kind::task;
    size_t lane = 0;
    const char* label = "";
    MakeTask make{};
    size_t mark = 0;
  };

  std::vector<Call> calls_;
  std::vector<std::vector<size_t>> seen_;  // by lane, its own calls among them
  size_t num_marks_ = 0;
};

// Launches of a capture, one after the other.
class CaptureLanes {
 public:
  explicit CaptureLanes(std::shared_ptr<const Capture> capture) : capture_(std::move(capture)) {}
  // Begins behind what `origin`, a stream of `executor`, was told, and ends before what it is told
  // then.
  void launch(ShuffledExecutor& executor, Stream& origin);

 private:
  std::shared_ptr<const Capture> capture_;
  std::vector<std::unique_ptr<Stream>> others_;
};

}  // namespace zinc::emulator
