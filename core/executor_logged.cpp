// Streams of a meta device whose work is noted.
#include <memory>

#include "core/executor.h"
#include "core/work_log.h"

namespace zinc {
namespace {

// Everything has happened already; a wait for it is noted.
class LoggedEvent final : public Event::State {
 public:
  LoggedEvent(WorkLog& log, int stream, int64_t count)
      : log_(log), stream_(stream), count_(count) {}

  bool query() override { return true; }
  void wait() override { log_.host_wait(stream_, count_); }
  int stream() const { return stream_; }
  int64_t count() const { return count_; }

 private:
  WorkLog& log_;
  int stream_;
  int64_t count_;
};

class LoggedStream final : public Stream {
 public:
  LoggedStream(std::string_view name, int lane, int index, WorkLog& log)
      : Stream(StreamKind::immediate, name, lane), index_(index), log_(log) {}

  void enqueue(const char*, Task task) override { task(); }
  Event record() override {
    return Event(std::make_shared<LoggedEvent>(log_, index_, log_.issued(index_)));
  }
  void wait(const Event& event) override {
    if (event.state() == nullptr) return;
    if (const auto* logged = dynamic_cast<const LoggedEvent*>(event.state().get())) {
      log_.wait(index_, logged->stream(), logged->count());
    } else {
      event.wait();
    }
  }
  void synchronize() override { log_.host_wait(index_, log_.issued(index_)); }
  void note(const char* label, const WorkCost& cost) override { log_.work(index_, label, cost); }
  WorkLog& log() const { return log_; }

 private:
  const int index_;
  WorkLog& log_;
};

}  // namespace

std::unique_ptr<Stream> make_logged_stream(std::string_view name, int lane, int index,
                                           WorkLog& log) {
  return std::make_unique<LoggedStream>(name, lane, index, log);
}

std::unique_ptr<Stream> make_logged_stream_beside(StreamRef stream, std::string_view name,
                                                  int lane) {
  const auto* logged = dynamic_cast<const LoggedStream*>(stream.operator->());
  if (logged == nullptr) return nullptr;
  return std::make_unique<LoggedStream>(name, lane, kHostStream, logged->log());
}

}  // namespace zinc
