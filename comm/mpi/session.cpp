#include "comm/mpi/session.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "comm/call.h"
#include "comm/mpi/checked.h"
#include "comm/transport.h"

namespace zinc::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kStuckTime{5};  // after which the thread counts as hung in MPI
constexpr milliseconds kWaitInterval{100};     // between looks of a waiting thread

}  // namespace

std::shared_ptr<MpiSession> MpiSession::start() {
  auto fresh = std::make_unique<MpiSession>();
  MpiSession& session = *fresh;
  session.control_.set_wake([&session] { session.posted_.notify_one(); });
  session.thread_ = std::thread([&session] { session.thread_body(); });
  try {
    session.run([] {}, "the start of MPI", std::chrono::hours(1));
  } catch (...) {
    session.close();
    throw;
  }
  return {fresh.release(), [](MpiSession* last) {
            std::unique_ptr<MpiSession> owner(last);
            if (!last->close()) (void)owner.release();
          }};
}

void MpiSession::set_world_lifeline(std::shared_ptr<Lifeline> lifeline) {
  const std::lock_guard lock(mutex_);
  world_lifeline_ = std::move(lifeline);
}

void MpiSession::set_farewell_deadline(Nanoseconds deadline) {
  const std::lock_guard lock(mutex_);
  farewell_deadline_ = deadline;
}

bool MpiSession::close() {
  std::unique_lock lock(mutex_);
  if (state_ == State::running) state_ = State::closing;
  posted_.notify_one();
  const auto limit = farewell_deadline_ + kStuckTime;
  if (!progressed_.wait_for(lock, limit, [this] { return state_ == State::over; })) {
    thread_.detach();
    return false;
  }
  lock.unlock();
  thread_.join();
  return true;
}

void MpiSession::run(const std::function<void()>& work, const std::string& what,
                     Nanoseconds deadline) {
  struct Outcome {
    bool done = false;
    std::exception_ptr failure;
  };
  const auto outcome = std::make_shared<Outcome>();
  std::unique_lock lock(mutex_);
  new_work_.push_back([this, outcome, work] {
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard inner(mutex_);
    outcome->failure = failure;
    outcome->done = true;
  });
  posted_.notify_one();
  const bool ended = progressed_.wait_for(
      lock, deadline, [&] { return outcome->done || abandoned_ || state_ == State::over; });
  if (outcome->done && outcome->failure == nullptr) return;
  if (outcome->done) std::rethrow_exception(outcome->failure);
  if (thread_failure_ != nullptr) std::rethrow_exception(thread_failure_);
  lock.unlock();
  if (ended) throw_stopped(what, control_);
  throw CommError(str(what, ": MPI does not come back after ", describe(deadline)));
}

void MpiSession::post(const std::shared_ptr<WireBatch>& batch) {
  batch->done.assign(batch->messages.size(), 0);
  batch->left = batch->num_native_requests;
  for (const WireMessage& message : batch->messages) batch->left += WirePieces::count_of(message);
  {
    const std::lock_guard lock(mutex_);
    new_batches_.push_back(batch);
  }
  posted_.notify_one();
}

bool MpiSession::failed() const { return abandoned_ || state_ == State::over; }

void MpiSession::wait(const WireBatch& batch, const std::string& what,
                      const std::vector<int>& world_ranks, Nanoseconds deadline) {
  std::unique_lock lock(mutex_);
  auto last_move = Clock::now();
  int64_t moved = batch.moved;
  const WaitingMark mark(control_);
  while (batch.left > 0 && !failed()) {
    progressed_.wait_for(lock, std::min<Nanoseconds>(kWaitInterval, deadline));
    if (batch.moved != moved) {
      moved = batch.moved;
      last_move = Clock::now();
    }
    if (batch.left == 0 || failed() || Clock::now() - last_move < deadline) continue;
    lock.unlock();
    const std::vector<int> missing = missing_ranks(batch, world_ranks);
    lock.lock();
    if (batch.left == 0 || failed() || batch.moved != moved) continue;
    lock.unlock();
    fail(
        str(what, ": no progress for ", describe(deadline), ": waiting for ", name_ranks(missing)));
  }
  const bool done = batch.left == 0;
  const std::string error = batch.error;
  lock.unlock();
  if (!error.empty()) fail(str(what, ": ", error));
  if (!done) throw_stopped(what, control_);
}

// The caller's memory may go as soon as the exception leaves.
void MpiSession::fail(const std::string& text) {
  give_up(text.c_str());
  throw CommError(text);
}

// The peers whose messages are not done, without those that wait for others themselves.
std::vector<int> MpiSession::missing_ranks(const WireBatch& batch,
                                           const std::vector<int>& world_ranks) {
  std::vector<int> suspects;
  {
    const std::lock_guard lock(mutex_);
    for (size_t m = 0; m < batch.messages.size(); ++m) {
      const WireMessage& message = batch.messages[m];
      if (batch.done[m] < message.bytes) {
        suspects.push_back(world_ranks[static_cast<size_t>(message.peer)]);
      }
    }
  }
  if (batch.native) suspects = world_ranks;
  std::ranges::sort(suspects);
  // clang 14 does not compile libstdc++'s std::ranges::unique.
  suspects.erase(std::unique(suspects.begin(), suspects.end()), suspects.end());
  const auto stop = [&] {
    const std::lock_guard lock(mutex_);
    return batch.left == 0 || failed();
  };
  std::erase(suspects, rank_);
  return missing_among(lifeline(), suspects, stop);
}

void MpiSession::give_up(const char* reason) noexcept {
  control_.raise(reason);
  std::unique_lock lock(mutex_);
  posted_.notify_one();
  progressed_.wait_for(lock, kStuckTime, [this] { return failed(); });
}

}  // namespace zinc::comm
