#include "core/work_log.h"

#include <algorithm>

namespace zinc {

void WorkLog::add(const Entry& entry) {
  if (stopped_) return;
  entries_.push_back(entry);
  if (entry.action != Action::work && entry.action != Action::wait) return;
  const auto stream = static_cast<size_t>(entry.stream);
  issued_.resize(std::max(issued_.size(), stream + 1), 0);
  ++issued_[stream];
}

void WorkLog::work(int stream, std::string_view label, const WorkCost& cost) {
  add({.action = Action::work, .stream = stream, .label = label, .cost = cost});
}

void WorkLog::wait(int stream, int source, int64_t count) {
  if (stream == source || count == 0) return;  // a stream's own order
  add({.action = Action::wait, .stream = stream, .source = source, .count = count});
}

void WorkLog::host_wait(int source, int64_t count) {
  if (count > 0) add({.action = Action::host_wait, .source = source, .count = count});
}

void WorkLog::mark(std::string_view label) { add({.action = Action::mark, .label = label}); }

int64_t WorkLog::issued(int stream) const {
  const auto index = static_cast<size_t>(stream);
  return index < issued_.size() ? issued_[index] : 0;
}

}  // namespace zinc
