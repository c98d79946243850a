#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "core/philox.h"
#include "core/stall.h"
#include "core/task_trace.h"

namespace zinc {
namespace {

// The part of issued work that events and waits keep after it ran.
struct Outcome {
  size_t lane = 0;
  uint64_t id = 0;  // place in the sequence of issues; 1 is the first
  uint64_t trace_id = 0;
  bool done = false;
  std::exception_ptr failure{};  // of this work, or of work that it came after
};

struct Work {
  const char* label = nullptr;
  Stream::Task task{};                      // a wait has one of the next two instead
  std::shared_ptr<Outcome> after{};         // work of this graph
  std::shared_ptr<Event::State> foreign{};  // an event of another executor
  std::shared_ptr<Outcome> outcome{};
  std::shared_ptr<TraceEvent> span{};
};

// The queue of one stream.
struct Lane {
  int trace_lane = 0;
  TraceRecorder* trace = nullptr;
  std::deque<Work> queue{};
  std::shared_ptr<Outcome> last{};  // issued
  std::exception_ptr failure{};
};

}  // namespace

// Work is ready when it is the first of its lane and everything that it waits for is done. So the
// work that something needs is a front part of every lane, and a choice among ready work is one of
// lanes.
class ShuffledExecutor::Graph {
 public:
  Graph(uint64_t seed, Order order)
      : key_(make_random_key(seed, Purpose::test, 0, 0, hash_text("shuffled executor"))),
        order_(order) {}

  size_t add_lane(int trace_lane, TraceRecorder* trace) {
    lanes_.push_back({.trace_lane = trace_lane, .trace = trace});
    return lanes_.size() - 1;
  }
  const Lane& lane(size_t index) const { return lanes_[index]; }

  // Adds work, and runs the work that the order wants to run by now.
  void issue(size_t lane_index, Work work) {
    if (static_cast<int>(lanes_[lane_index].queue.size()) >= kMaxQueuedTasks) {
      const std::shared_ptr<Outcome> oldest = lanes_[lane_index].queue.front().outcome;
      finish(*oldest);
    }
    Lane& lane = lanes_[lane_index];
    work.outcome = std::make_shared<Outcome>();
    work.outcome->lane = lane_index;
    work.outcome->id = ++last_id_;
    if (lane.trace != nullptr) {
      const bool is_wait = work.after != nullptr || work.foreign != nullptr;
      work.outcome->trace_id = is_wait ? trace_id_of(lane) : lane.trace->next_id();
    }
    lane.last = work.outcome;
    lane.queue.push_back(std::move(work));
    run_at_issue();
  }

  // Runs until `outcome` is done.
  void finish(const Outcome& outcome) {
    const std::vector<uint64_t> bounds = needed_for(outcome);
    while (!outcome.done) {
      constexpr uint32_t kDetours = 4;  // one choice in so many is among all ready work
      const bool detour = phase() == Order::random && draw(kDetours) == 0;
      bug_check(run_one(detour ? everything() : bounds),
                "shuffled executor: work waits for itself");
    }
  }

  // Runs one piece of what `outcome` needs.
  void advance(const Outcome& outcome) {
    if (!outcome.done) {
      bug_check(run_one(needed_for(outcome)), "shuffled executor: work waits for itself");
    }
  }

  void drain() {
    while (run_one(everything())) {
    }
  }

 private:
  uint32_t draw(uint32_t bound) { return key_.bits(num_draws_++) % bound; }
  std::vector<uint64_t> everything() const {
    return std::vector<uint64_t>(lanes_.size(), last_id_);
  }
  static uint64_t trace_id_of(const Lane& lane) {
    return lane.last == nullptr ? 0 : lane.last->trace_id;
  }

  // The order that holds now. With Order::by_seed it changes every few calls.
  Order phase() {
    if (order_ != Order::by_seed) return order_;
    constexpr uint32_t kLongestPhase = 32;
    if (phase_left_ == 0) {
      constexpr Order kOrders[] = {Order::latest, Order::earliest, Order::random};
      phase_ = kOrders[draw(3)];
      phase_left_ = 1 + draw(kLongestPhase);
    }
    --phase_left_;
    return phase_;
  }

  void run_at_issue() {
    switch (phase()) {
      case Order::by_seed:
      case Order::latest:
        return;
      case Order::earliest:
        return drain();
      case Order::random:
        constexpr uint32_t kMostAtOnce = 3;
        for (uint32_t i = draw(kMostAtOnce + 1); i > 0; --i) run_one(everything());
        return;
    }
  }

  // For every lane, the last id that has to run before `outcome` is done; 0: none.
  std::vector<uint64_t> needed_for(const Outcome& outcome) const {
    std::vector<uint64_t> bounds(lanes_.size(), 0);
    std::vector<const Outcome*> open{&outcome};
    while (!open.empty()) {
      const Outcome& wanted = *open.back();
      open.pop_back();
      uint64_t& bound = bounds[wanted.lane];
      if (wanted.done || wanted.id <= bound) continue;
      const auto& queue = lanes_[wanted.lane].queue;
      const auto by_id = [](uint64_t id, const Work& work) { return id < work.outcome->id; };
      for (auto it = std::upper_bound(queue.begin(), queue.end(), bound, by_id);
           it != queue.end() && it->outcome->id <= wanted.id; ++it) {
        if (it->after != nullptr) open.push_back(it->after.get());
      }
      bound = wanted.id;
    }
    return bounds;
  }

  // Runs one piece of ready work whose id is within its lane's bound; false where there is none.
  bool run_one(const std::vector<uint64_t>& bounds) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < bounds.size(); ++i) {
      const auto& queue = lanes_[i].queue;
      if (queue.empty() || queue.front().outcome->id > bounds[i]) continue;
      if (queue.front().after == nullptr || queue.front().after->done) ready.push_back(i);
    }
    if (ready.empty()) return false;
    run_front(ready[draw(static_cast<uint32_t>(ready.size()))]);
    return true;
  }

  void run_front(size_t lane_index) {
    Work work = std::move(lanes_[lane_index].queue.front());
    lanes_[lane_index].queue.pop_front();
    std::exception_ptr failure = lanes_[lane_index].failure;
    if (failure == nullptr && work.after != nullptr) failure = work.after->failure;
    if (failure == nullptr) failure = failure_of(work, lane_index);
    const std::shared_ptr<Outcome> outcome = std::move(work.outcome);
    lanes_[lane_index].failure = failure;
    outcome->failure = failure;
    outcome->done = true;
  }

  // Runs the work and returns its exception.
  std::exception_ptr failure_of(Work& work, size_t lane_index) {
    TraceRecorder* const trace = lanes_[lane_index].trace;
    const int trace_lane = lanes_[lane_index].trace_lane;
    try {
      if (work.foreign != nullptr) {
        wait_with_stall(*work.foreign, trace, trace_lane);
      } else if (work.after == nullptr) {
        const TaskTrace record(trace, work.label, trace_lane, work.outcome->trace_id, 0, work.span);
        work.task();
      }
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  const RandomKey key_;
  uint64_t num_draws_ = 0;
  const Order order_;
  Order phase_ = Order::latest;
  uint32_t phase_left_ = 0;  // calls of phase() until the next one is drawn
  uint64_t last_id_ = 0;
  std::deque<Lane> lanes_;
};

namespace {

using Graph = ShuffledExecutor::Graph;

class ShuffledEvent final : public Event::State {
 public:
  ShuffledEvent(std::shared_ptr<Graph> graph, std::shared_ptr<Outcome> outcome)
      : graph_(std::move(graph)), outcome_(std::move(outcome)) {}

  bool query() override {
    graph_->advance(*outcome_);
    return outcome_->done;
  }
  void wait() override {
    graph_->finish(*outcome_);
    if (outcome_->failure != nullptr) std::rethrow_exception(outcome_->failure);
  }
  uint64_t trace_id() const override { return outcome_->trace_id; }
  bool is_run_by_waiter() const override { return true; }

  const std::shared_ptr<Graph>& graph() const { return graph_; }
  const std::shared_ptr<Outcome>& outcome() const { return outcome_; }

 private:
  std::shared_ptr<Graph> graph_;
  std::shared_ptr<Outcome> outcome_;
};

class ShuffledStream final : public Stream {
 public:
  ShuffledStream(std::shared_ptr<Graph> graph, std::string_view name, int lane,
                 TraceRecorder* trace)
      : Stream(StreamKind::shuffled, name, lane),
        graph_(std::move(graph)),
        lane_index_(graph_->add_lane(lane, trace)) {}

  ~ShuffledStream() override {
    try {
      const std::shared_ptr<Outcome> last = graph_->lane(lane_index_).last;
      if (last != nullptr) graph_->finish(*last);
    } catch (...) {
    }
  }

  void enqueue(const char* label, Task task) override {
    graph_->issue(lane_index_, {.label = label, .task = std::move(task), .span = trace_span()});
  }

  Event record() override {
    const std::shared_ptr<Outcome>& last = graph_->lane(lane_index_).last;
    return last == nullptr ? Event() : Event(std::make_shared<ShuffledEvent>(graph_, last));
  }

  void wait(const Event& event) override {
    if (event.state() == nullptr) return;
    const auto* own = dynamic_cast<const ShuffledEvent*>(event.state().get());
    if (own != nullptr && own->graph() == graph_) {
      graph_->issue(lane_index_, {.after = own->outcome()});
    } else {
      graph_->issue(lane_index_, {.foreign = event.state()});
    }
  }

  void synchronize() override { record().wait(); }

 private:
  std::shared_ptr<Graph> graph_;
  size_t lane_index_;
};

}  // namespace

ShuffledExecutor::ShuffledExecutor(uint64_t seed, Order order)
    : graph_(std::make_shared<Graph>(seed, order)) {}

ShuffledExecutor::~ShuffledExecutor() {
  try {
    graph_->drain();
  } catch (...) {
  }
}

std::unique_ptr<Stream> ShuffledExecutor::make_stream(std::string_view name, int lane,
                                                      TraceRecorder* trace) {
  return std::make_unique<ShuffledStream>(graph_, name, lane, trace);
}

void ShuffledExecutor::drain() { graph_->drain(); }

}  // namespace zinc
