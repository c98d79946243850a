// tests/core/blocked_event.h: an event that every wait has to block for.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "core/stream.h"

namespace zinc {

class BlockedEvent final : public Event::State {
 public:
  explicit BlockedEvent(uint64_t trace_id, TraceRecorder* trace = nullptr,
                        std::exception_ptr failure = nullptr)
      : trace_id_(trace_id), trace_(trace), failure_(failure) {}

  bool query() override { return false; }
  void wait() override {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }
  uint64_t trace_id() const override { return trace_id_; }
  TraceRecorder* trace() const override { return trace_; }

 private:
  uint64_t trace_id_;
  TraceRecorder* trace_;
  std::exception_ptr failure_;
};

}  // namespace zinc
