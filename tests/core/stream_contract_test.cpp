// The promises of core/stream.h, on every executor.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/trace.h"

namespace zinc {
namespace stream_contract_test {

using testing::ElementsAre;
using Order = ShuffledExecutor::Order;

// Makes streams of one kind.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::unique_ptr<Stream> make_stream(std::string_view name, int lane,
                                              TraceRecorder* trace) = 0;
};

class InlineExecutor final : public Executor {
  std::unique_ptr<Stream> make_stream(std::string_view name, int lane,
                                      TraceRecorder* trace) override {
    return make_inline_stream(name, lane, trace);
  }
};

class WorkerExecutor final : public Executor {
  std::unique_ptr<Stream> make_stream(std::string_view name, int lane,
                                      TraceRecorder* trace) override {
    return make_worker_stream(name, lane, trace, 1);
  }
};

class AnyOrderExecutor final : public Executor {
 public:
  explicit AnyOrderExecutor(Order order) : executor_(7, order) {}
  std::unique_ptr<Stream> make_stream(std::string_view name, int lane,
                                      TraceRecorder* trace) override {
    return executor_.make_stream(name, lane, trace);
  }

 private:
  ShuffledExecutor executor_;
};

class CudaExecutor final : public Executor {
  std::unique_ptr<Stream> make_stream(std::string_view name, int lane,
                                      TraceRecorder* trace) override {
    return streams_->make_stream(name, lane, trace);
  }
  std::unique_ptr<CudaStreams> streams_ = make_cuda_streams({.kind = DeviceKind::cuda});
};

std::unique_ptr<Executor> make_executor(const std::string& kind) {
  if (kind == "cuda") return std::make_unique<CudaExecutor>();
  if (kind == "inline") return std::make_unique<InlineExecutor>();
  if (kind == "worker") return std::make_unique<WorkerExecutor>();
  if (kind == "latest") return std::make_unique<AnyOrderExecutor>(Order::latest);
  if (kind == "earliest") return std::make_unique<AnyOrderExecutor>(Order::earliest);
  if (kind == "random") return std::make_unique<AnyOrderExecutor>(Order::random);
  return std::make_unique<AnyOrderExecutor>(Order::by_seed);
}

class StreamContract : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Stream> stream(std::string_view name, TraceRecorder* trace = nullptr) {
    return executor_->make_stream(name, ++last_lane_, trace);
  }

 private:
  std::unique_ptr<Executor> executor_ = make_executor(GetParam());
  int last_lane_ = 0;
};

// Executors whose work does not throw at the call; CUDA's where there is a GPU, or an emulated one.
std::vector<std::string> queued_executors() {
  std::vector<std::string> kinds{"worker", "latest", "earliest", "random", "by_seed"};
  if (!cuda_devices().empty()) kinds.emplace_back("cuda");
  return kinds;
}
std::vector<std::string> all_executors() {
  std::vector<std::string> kinds = queued_executors();
  kinds.emplace_back("inline");
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Executors, StreamContract, testing::ValuesIn(all_executors()),
                         [](const auto& info) { return info.param; });

// Streams whose work does not throw at the call.
class QueuedStreamContract : public StreamContract {};

INSTANTIATE_TEST_SUITE_P(Executors, QueuedStreamContract, testing::ValuesIn(queued_executors()),
                         [](const auto& info) { return info.param; });

// Streams that fail one by one; those of a GPU fail together (core/cuda_backend.h).
class OwnFailures : public StreamContract {};

INSTANTIATE_TEST_SUITE_P(Executors, OwnFailures,
                         testing::Values("worker", "latest", "earliest", "random", "by_seed"),
                         [](const auto& info) { return info.param; });

TEST_P(StreamContract, Synchronize_ManyTasks_RunsAllInTheOrderOfIssue) {
  const auto s = stream("s");
  std::vector<int> seen;
  std::vector<int> expected;
  for (int i = 0; i < 1000; ++i) {
    StreamRef(*s).submit("append", [&seen, i] { seen.push_back(i); });
    expected.push_back(i);
  }
  s->synchronize();
  EXPECT_EQ(seen, expected);
}

TEST_P(StreamContract, Enqueue_AndSubmit_KeepOneOrder) {
  const auto s = stream("s");
  std::vector<int> seen;
  StreamRef(*s).submit("a", [&] { seen.push_back(1); });
  s->enqueue("b", [&] { seen.push_back(2); });
  StreamRef(*s).submit("c", [&] { seen.push_back(3); });
  s->synchronize();
  EXPECT_THAT(seen, ElementsAre(1, 2, 3));
}

TEST_P(StreamContract, Event_Waited_AllEarlierWorkIsDone) {
  const auto s = stream("s");
  int value = 0;
  s->enqueue("first", [&] { value = 1; });
  const Event event = s->record();
  std::atomic<int> later = 0;
  s->enqueue("second", [&] { later = 2; });
  event.wait();
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(event.query());
  s->synchronize();
  EXPECT_EQ(later, 2);
}

TEST_P(StreamContract, Event_Polled_QueryMakesProgress) {
  const auto a = stream("a");
  const auto b = stream("b");
  int value = 0;
  for (int i = 0; i < 10; ++i) a->enqueue("add", [&] { ++value; });
  b->wait(a->record());
  b->enqueue("double", [&] { value *= 2; });
  const Event event = b->record();
  while (!event.query()) {
  }
  EXPECT_EQ(value, 20);
}

TEST_P(StreamContract, Event_OfAnIdleStream_HasHappened) {
  const auto s = stream("s");
  EXPECT_TRUE(Event().query());
  Event().wait();
  const Event event = s->record();
  EXPECT_TRUE(event.query());
  event.wait();
}

TEST_P(StreamContract, Event_OutlivesItsStream) {
  Event event;
  int value = 0;
  {
    const auto s = stream("s");
    s->enqueue("set", [&] { value = 1; });
    event = s->record();
  }
  EXPECT_TRUE(event.query());
  event.wait();
  EXPECT_EQ(value, 1);
}

TEST_P(StreamContract, Wait_ForAnotherStream_OrdersTheWorkOfBoth) {
  const auto producer = stream("producer");
  const auto consumer = stream("consumer");
  int value = 0;
  std::vector<int> seen;
  for (int i = 1; i <= 200; ++i) {
    producer->enqueue("write", [&value, i] { value = i; });
    consumer->wait(producer->record());
    consumer->enqueue("read", [&] { seen.push_back(value); });
    producer->wait(consumer->record());  // otherwise the next write would overtake the read
  }
  consumer->synchronize();
  ASSERT_EQ(seen.size(), 200u);
  for (int i = 1; i <= 200; ++i) EXPECT_EQ(seen[static_cast<size_t>(i - 1)], i);
}

TEST_P(StreamContract, Wait_ForItsOwnEvent_DoesNotHang) {
  const auto s = stream("s");
  int value = 0;
  s->enqueue("set", [&] { value = 1; });
  s->wait(s->record());
  s->enqueue("add", [&] { value += 1; });
  s->synchronize();
  EXPECT_EQ(value, 2);
}

TEST_P(StreamContract, Destructor_FinishesIssuedWork) {
  int count = 0;
  {
    const auto a = stream("a");
    const auto b = stream("b");
    for (int i = 0; i < 100; ++i) {
      a->enqueue("add", [&] { ++count; });
      b->wait(a->record());
      b->enqueue("add", [&] { ++count; });
      a->wait(b->record());
    }
  }
  EXPECT_EQ(count, 200);
}

TEST_P(StreamContract, Task_WhenDone_HasLetGoOfWhatItHeld) {
  const auto s = stream("s");
  std::atomic<bool> gone = false;
  // Slow to go, so that an event that happens too early is seen.
  std::shared_ptr<int> held(new int(1), [&](const int* value) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    delete value;
    gone = true;
  });
  s->enqueue("hold", [moved = std::move(held)] {});
  const Event event = s->record();
  while (!event.query()) {
  }
  EXPECT_TRUE(gone);
}

TEST_P(QueuedStreamContract, Failure_IsThrownAgainByEveryLaterWait) {
  const auto s = stream("s");
  bool ran = false;
  s->enqueue("throw", [] { throw DataError("bad shard"); });
  s->enqueue("dropped", [&] { ran = true; });
  const Event after = s->record();
  EXPECT_THROW(s->synchronize(), DataError);
  EXPECT_THROW(after.wait(), DataError);
  EXPECT_THROW(s->synchronize(), DataError);
  EXPECT_TRUE(after.query());
  EXPECT_FALSE(ran);
  s->enqueue("dropped too", [&] { ran = true; });
  EXPECT_THROW(s->record().wait(), DataError);
  EXPECT_FALSE(ran);
}

TEST_P(OwnFailures, Failure_OfAWaitedStream_FailsTheWaiter) {
  const auto a = stream("a");
  const auto b = stream("b");
  const auto c = stream("c");
  bool ran = false;
  bool ran_beside = false;
  a->enqueue("throw", [] { throw DataError("bad shard"); });
  b->wait(a->record());
  b->enqueue("dropped", [&] { ran = true; });
  c->enqueue("unrelated", [&] { ran_beside = true; });
  EXPECT_THROW(b->synchronize(), DataError);
  c->synchronize();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(ran_beside);
}

TEST_P(OwnFailures, Failure_BeforeTheEvent_LeavesEarlierEventsGood) {
  const auto s = stream("s");
  int value = 0;
  s->enqueue("set", [&] { value = 1; });
  const Event good = s->record();
  s->enqueue("throw", [] { throw DataError("bad shard"); });
  EXPECT_THROW(s->synchronize(), DataError);
  good.wait();
  EXPECT_EQ(value, 1);
}

TEST_P(QueuedStreamContract, Failure_AtDestruction_NeitherThrowsNorHangs) {
  const auto other = stream("other");
  Event event;
  {
    const auto s = stream("s");
    s->enqueue("throw", [] { throw std::runtime_error("lost"); });
    for (int i = 0; i < 10; ++i) s->enqueue("dropped", [] { FAIL() << "ran after a failure"; });
    event = s->record();
    other->wait(event);
  }
  EXPECT_THROW(event.wait(), std::runtime_error);
  EXPECT_THROW(other->synchronize(), std::runtime_error);
}

TEST_P(StreamContract, Lifetime_ExpiresWithTheStream) {
  auto s = stream("s");
  const std::weak_ptr<const void> lifetime = s->lifetime();
  EXPECT_FALSE(lifetime.expired());
  s.reset();
  EXPECT_TRUE(lifetime.expired());
}

TEST_P(StreamContract, Trace_EveryTaskOfEveryLaunchPath_IsOneComputeEvent) {
  TraceRecorder trace;
  {
    const auto s = stream("s", &trace);
    StreamRef(*s).submit("submitted", [] {});
    s->enqueue("enqueued", [] {});
    s->synchronize();
  }
  std::vector<TraceEvent> events;
  for (const TraceEvent& event : trace.events()) {
    if (event.kind == TraceKind::compute) events.push_back(event);
  }
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "submitted");
  EXPECT_EQ(events[1].name, "enqueued");
  for (const TraceEvent& event : events) {
    EXPECT_EQ(event.lane, 1);
    EXPECT_LE(event.begin_ns, event.end_ns);
    EXPECT_GT(event.id, 0u);
  }
  EXPECT_LE(events[0].end_ns, events[1].begin_ns);
  EXPECT_NE(events[0].id, events[1].id);
}

TEST_P(StreamContract, Trace_OfWorkThatThrows_IsStillRecorded) {
  TraceRecorder trace;
  const auto s = stream("s", &trace);
  const auto run = [&] {
    s->enqueue("throws", [] { throw DataError("bad shard"); });
    s->synchronize();
  };
  EXPECT_THROW(run(), DataError);
  int found = 0;
  for (const TraceEvent& event : trace.events()) found += event.name == "throws" ? 1 : 0;
  EXPECT_EQ(found, 1);
}

}  // namespace stream_contract_test
}  // namespace zinc
