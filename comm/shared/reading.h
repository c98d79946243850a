// comm/shared/reading.h: a reader's mark on a desk that points at the owner's memory.
#pragma once

#include <functional>
#include <string>

#include "comm/shared/segment.h"
#include "comm/transport.h"

namespace zinc::comm {

// While it lives the owner of the desk does not leave its call, so the owner's memory stays. It
// does not begin after the lifeline was raised (owners raise it before they look for readers).
// After its end the reader does not touch the desk.
class Reading {
 public:
  Reading(Progress& taken, Desk& desk, const Lifeline& lifeline,
          const std::function<std::string()>& what)
      : taken_(taken), desk_(desk) {
    taken_.chunks.store(kReading);
    if (!lifeline.raised()) return;
    finish();
    throw_stopped(what(), lifeline);
  }
  ~Reading() { finish(); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  void finish() {
    taken_.chunks.store(kAllTaken);
    desk_.taken_bell.ring();
  }

  Progress& taken_;
  Desk& desk_;
};

}  // namespace zinc::comm
