#include "core/parallel.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/processors.h"

namespace zinc {
namespace {

// Note [Thread teams]
// The caller cuts a loop into shares of neighbouring chunks, one for each thread, so that the same
// thread finds the same rows in its caches loop after loop. A thread takes chunks of its own share
// first, several at a time and fewer towards the end, then the rest of the other threads' shares.
// The caller therefore never waits for a helper that has not begun: on a busy machine a helper may
// not get a processor for milliseconds, and the caller does the helper's share meanwhile. The
// caller waits only for helpers that are in the midst of chunks.
//
// The gate says which loop runs, whether a helper may still enter it, and how many are inside. A
// helper touches the loop's data only between entering and leaving, and the caller changes them
// only while the gate is closed and nobody is inside.
//
// Waiting threads spin for kSpins turns, some tens of microseconds: longer than what lies between
// the kernels of a step, and short beside the time slice of a scheduler. Then they sleep. They also
// yield the processor now and then, because on a busy machine the thread that they wait for may be
// queued behind them on the same one.

constexpr int kSpins = 2000;
constexpr int kSpinsToYield = 100;
constexpr int64_t kPortion = 4;  // a thread takes a fourth of what is left of a share

constexpr uint32_t kLoop = 1u << 16;  // the number of the loop is counted in these
constexpr uint32_t kOpen = 1u << 15;
constexpr uint32_t kInside = kOpen - 1;
constexpr int kMaxTeam = 4096;
static_assert(kMaxTeam <= static_cast<int>(kInside));

uint32_t loop_of(uint32_t gate) { return gate / kLoop; }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class IsDone>
bool spin_until(IsDone&& is_done) {
  for (int i = 1; i <= kSpins; ++i) {
    if (is_done()) return true;
    relax();
    if (i % kSpinsToYield == 0) ::sched_yield();
  }
  return false;
}

// Returns when `word` is woken, at once where it differs from `expected`, or for no reason.
void sleep_on(std::atomic<uint32_t>& word, uint32_t expected) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// The state of one thread in parallel loops.
struct ThreadState {
  int num_threads = 0;  // 0: not asked yet
  int index = 0;
  bool in_loop = false;
};
thread_local ThreadState this_thread;

class InLoop {
 public:
  InLoop(int index, int num_threads) : before_(this_thread) {
    this_thread = {.num_threads = num_threads, .index = index, .in_loop = true};
  }
  ~InLoop() { this_thread = before_; }
  InLoop(const InLoop&) = delete;
  InLoop& operator=(const InLoop&) = delete;

 private:
  const ThreadState before_;
};

class ThreadTeam {
 public:
  ThreadTeam() : shares_(std::make_unique<Share[]>(1)), process_(::getpid()) {}
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  ~ThreadTeam() {
    if (process_ != ::getpid()) {  // a fork has no helpers: there is nobody to wait for
      static std::atomic<const void*> left_behind = nullptr;  // no leak: somebody points to it
      left_behind = helpers_.release();
      return;
    }
    is_ending_ = true;
    gate_.fetch_add(kLoop);
    for (Helper& helper : *helpers_) {
      ring(helper);
      helper.thread.join();
    }
  }

  void run(int num_threads, int64_t chunks, detail::RunChunks run, void* body) {
    start_helpers(num_threads - 1);
    run_ = run;
    body_ = body;
    num_threads_ = num_threads;
    num_shares_ = static_cast<int>(
        std::min<int64_t>({num_threads, chunks, static_cast<int64_t>(helpers_->size()) + 1}));
    for (int i = 0; i < num_shares_; ++i) {
      const int64_t whole = chunks / num_shares_;
      const int64_t longer = chunks % num_shares_;  // the first shares are longer by one chunk
      shares_[i].next.store(i * whole + std::min<int64_t>(i, longer), std::memory_order_relaxed);
      shares_[i].end = (i + 1) * whole + std::min<int64_t>(i + 1, longer);
    }
    failed_at_ = std::numeric_limits<int64_t>::max();
    gate_.store((loop_of(gate_.load(std::memory_order_relaxed)) + 1) * kLoop | kOpen);
    for (int i = 1; i < num_shares_; ++i) ring((*helpers_)[static_cast<size_t>(i - 1)]);
    take_part(0);
    gate_.fetch_and(~kOpen);
    wait_for_helpers();
    if (failed_at_ != std::numeric_limits<int64_t>::max()) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next = 0;  // the first chunk that nobody has taken
    int64_t end = 0;
  };
  struct alignas(64) Helper {
    std::atomic<uint32_t> is_asleep = 0;
    std::thread thread;
  };

  void start_helpers(int count) {
    if (count <= static_cast<int>(helpers_->size()) || has_failed_to_start_) return;
    if (process_ != ::getpid()) return;
    shares_ = std::make_unique<Share[]>(static_cast<size_t>(count) + 1);
    while (static_cast<int>(helpers_->size()) < count) {
      Helper& helper = helpers_->emplace_back();
      const auto index = static_cast<int>(helpers_->size());
      try {
        const uint32_t seen = loop_of(gate_.load());
        helper.thread = std::thread([this, &helper, index, seen] { help(helper, index, seen); });
      } catch (const std::system_error&) {  // a limit of the system: the loops run on fewer
        helpers_->pop_back();
        has_failed_to_start_ = true;
        return;
      }
    }
  }

  static void ring(Helper& helper) {
    if (helper.is_asleep.load() == 0) return;
    helper.is_asleep.store(0);
    wake(helper.is_asleep);
  }

  void help(Helper& self, int index, uint32_t seen) {
    const auto has_changed = [&] { return loop_of(gate_.load()) != seen; };
    while (true) {
      if (!spin_until(has_changed)) {
        self.is_asleep.store(1);
        while (!has_changed() && self.is_asleep.load() == 1) sleep_on(self.is_asleep, 1);
        self.is_asleep.store(0);
        if (!has_changed()) continue;
      }
      if (is_ending_) return;
      uint32_t gate = gate_.load();
      seen = loop_of(gate);
      bool is_inside = false;
      while (!is_inside && loop_of(gate) == seen && (gate & kOpen) != 0) {
        is_inside = gate_.compare_exchange_weak(gate, gate + 1);
      }
      if (is_inside) {
        if (index < num_shares_) take_part(index);
        if ((gate_.fetch_sub(1) & kInside) == 1 && caller_is_asleep_.load()) wake(gate_);
      }
    }
  }

  void take_part(int index) {
    const InLoop here(index, num_threads_);
    for (int i = 0; i < num_shares_; ++i) {
      Share& share = shares_[(index + i) % num_shares_];
      int64_t first = share.next.load(std::memory_order_relaxed);
      while (first < share.end) {
        const int64_t last = first + std::max<int64_t>(1, (share.end - first) / kPortion);
        if (!share.next.compare_exchange_weak(first, last, std::memory_order_relaxed)) continue;
        try {
          run_(body_, first, last);
        } catch (...) {
          keep_failure(first);
        }
        first = share.next.load(std::memory_order_relaxed);
      }
    }
  }

  // Portions are disjoint, so the lowest portion that failed has the lowest chunk that failed.
  void keep_failure(int64_t first) {
    const std::lock_guard lock(failure_mutex_);
    if (first >= failed_at_) return;
    failed_at_ = first;
    failure_ = std::current_exception();
  }

  void wait_for_helpers() {
    const auto nobody_inside = [&] { return (gate_.load() & kInside) == 0; };
    if (spin_until(nobody_inside)) return;
    caller_is_asleep_.store(true);
    for (uint32_t gate = gate_.load(); (gate & kInside) != 0; gate = gate_.load()) {
      sleep_on(gate_, gate);
    }
    caller_is_asleep_.store(false);
  }

  alignas(64) std::atomic<uint32_t> gate_ = 0;
  std::atomic<bool> caller_is_asleep_ = false;
  std::atomic<bool> is_ending_ = false;

  // The loop: see Note [Thread teams].
  alignas(64) detail::RunChunks run_ = nullptr;
  void* body_ = nullptr;
  int num_threads_ = 1;
  int num_shares_ = 1;
  std::unique_ptr<Share[]> shares_;
  std::mutex failure_mutex_;
  int64_t failed_at_ = 0;
  std::exception_ptr failure_;

  const pid_t process_;
  bool has_failed_to_start_ = false;
  std::unique_ptr<std::deque<Helper>> helpers_ = std::make_unique<std::deque<Helper>>();
};

thread_local std::unique_ptr<ThreadTeam> this_team;

}  // namespace

int num_parallel_threads() {
  if (this_thread.num_threads == 0) this_thread.num_threads = usable_processors();
  return this_thread.num_threads;
}

void set_num_parallel_threads(int count) {
  require(count >= 1, "threads of parallel loops: at least 1, not ", count);
  this_thread.num_threads = std::min(count, kMaxTeam);
}

int parallel_thread() { return this_thread.index; }

bool in_parallel_loop() { return this_thread.in_loop; }

void detail::run_on_team(int64_t chunks, RunChunks run, void* body) {
  if (this_team == nullptr) this_team = std::make_unique<ThreadTeam>();
  this_team->run(num_parallel_threads(), chunks, run, body);
}

}  // namespace zinc
