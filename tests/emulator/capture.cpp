#include "tests/emulator/capture.h"

#include <algorithm>
#include <utility>

namespace zinc::emulator {

size_t Capture::join() {
  for (std::vector<size_t>& seen : seen_) seen.push_back(0);
  seen_.emplace_back(seen_.size() + 1, 0);
  return seen_.size() - 1;
}

void Capture::add(size_t lane, const char* label, MakeTask make) {
  calls_.push_back({.lane = lane, .label = label, .make = std::move(make)});
  ++seen_[lane][lane];
}

Capture::Mark Capture::record(size_t lane) {
  calls_.push_back({.kind = Kind::record, .lane = lane, .mark = num_marks_});
  return {.number = num_marks_++, .seen = seen_[lane]};
}

void Capture::wait(size_t lane, const Mark& mark, bool happens) {
  if (happens) calls_.push_back({.kind = Kind::wait, .lane = lane, .mark = mark.number});
  for (size_t i = 0; i < mark.seen.size(); ++i) {
    seen_[lane][i] = std::max(seen_[lane][i], mark.seen[i]);
  }
}

bool Capture::is_joined() const {
  for (size_t lane = 0; lane < seen_.size(); ++lane) {
    if (seen_[0][lane] < seen_[lane][lane]) return false;
  }
  return true;
}

void CaptureLanes::launch(ShuffledExecutor& executor, Stream& origin) {
  while (others_.size() + 1 < capture_->seen_.size()) {
    others_.push_back(executor.make_stream("graph", 0, nullptr));
  }
  const Event begun = origin.record();
  for (const auto& other : others_) other->wait(begun);
  std::vector<Event> marks(capture_->num_marks_);
  for (const Capture::Call& call : capture_->calls_) {
    Stream& lane = call.lane == 0 ? origin : *others_[call.lane - 1];
    switch (call.kind) {
      case Capture::Kind::task:
        lane.enqueue(call.label, call.make());
        break;
      case Capture::Kind::record:
        marks[call.mark] = lane.record();
        break;
      case Capture::Kind::wait:
        lane.wait(marks[call.mark]);
        break;
    }
  }
  for (const auto& other : others_) origin.wait(other->record());
}

}  // namespace zinc::emulator
