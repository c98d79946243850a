#include <memory>
#include <utility>

#include "core/executor.h"
#include "core/stall.h"
#include "core/task_trace.h"

namespace zinc {
namespace {

class InlineStream final : public Stream {
 public:
  InlineStream(std::string_view name, int lane, TraceRecorder* trace)
      : Stream(StreamKind::immediate, name, lane, trace == nullptr), trace_(trace) {}

  void enqueue(const char* label, Task task) override {
    const uint64_t id = trace_ == nullptr ? 0 : trace_->next_id();
    const TaskTrace record(trace_, label, lane(), id, std::exchange(waited_for_, 0), trace_span());
    task();
  }

  Event record() override { return {}; }

  void wait(const Event& event) override {
    if (event.state() == nullptr) return;
    const uint64_t producer = wait_with_stall(*event.state(), trace_, lane());
    if (producer != 0) waited_for_ = producer;
  }

  void synchronize() override {}

 private:
  TraceRecorder* trace_;
  uint64_t waited_for_ = 0;  // trace id that the last wait blocked for, until a task begins
};

}  // namespace

std::unique_ptr<Stream> make_inline_stream(std::string_view name, int lane, TraceRecorder* trace) {
  return std::make_unique<InlineStream>(name, lane, trace);
}

}  // namespace zinc
