#include "core/stream.h"

#include "core/stall.h"

namespace zinc {

void Event::wait() const {
  if (state_ != nullptr) wait_with_stall(*state_, state_->trace(), kHostLane);
}

void Stream::note(const char*, const WorkCost&) {}

Stream::Stream(StreamKind kind, std::string_view name, int lane, bool runs_at_submit)
    : kind_(kind),
      runs_at_submit_(runs_at_submit),
      lane_(lane),
      name_(name),
      lifetime_(std::make_shared<char>()) {}

}  // namespace zinc
