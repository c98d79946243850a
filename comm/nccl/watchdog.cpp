#include "comm/nccl/watchdog.h"

#include <utility>

#include "comm/transport.h"
#include "core/cuda_backend.h"
#include "core/error.h"

namespace zinc::comm {
namespace {

constexpr auto kLookInterval = std::chrono::milliseconds(10);

std::string describe(const Flight& flight) {
  return flight.message.empty() ? to_string(flight.terms) : flight.message;
}

}  // namespace

Watchdog::Watchdog(Device device, std::shared_ptr<Lifeline> lifeline,
                   std::shared_ptr<Heartbeat> heartbeat,
                   std::function<void(std::exception_ptr)> fail)
    : device_(device),
      lifeline_(std::move(lifeline)),
      heartbeat_(std::move(heartbeat)),
      fail_(std::move(fail)),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::keep(const std::shared_ptr<Clique>& clique) {
  const std::lock_guard lock(mutex_);
  std::erase_if(cliques_, [](const auto& known) { return known.expired(); });
  cliques_.push_back(clique);
}

void Watchdog::watch(Flight flight) {
  {
    const std::lock_guard lock(mutex_);
    flights_.push_back(std::move(flight));
    if (flights_.size() > 1) return;
  }
  changed_.notify_one();
}

void Watchdog::queued(const Event& done) {
  const std::lock_guard lock(mutex_);
  if (!flights_.empty()) flights_.back().done = done;
}

bool Watchdog::is_done(const Flight& flight) {
  std::optional<Event> done;
  {
    const std::lock_guard lock(mutex_);
    done = flight.done;
  }
  return done && done->query();
}

void Watchdog::run() {
  try {
    use_cuda_device(device_);
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (flights_.empty()) {
        changed_.wait(lock);
        continue;
      }
      lock.unlock();
      look();
      lock.lock();
      changed_.wait_for(lock, kLookInterval, [this] { return stopping_; });
    }
  } catch (const std::exception& error) {
    lifeline_->raise(error.what());
    give_up(str("the watch over NCCL failed: ", error.what()));
  }
}

// Removes finished flights from the front.
const Flight* Watchdog::first_under_way() {
  while (true) {
    Flight* first = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (flights_.empty()) return nullptr;
      first = &flights_.front();
    }
    if (!is_done(*first)) return first;
    if (heartbeat_ != nullptr && first->message.empty() && !gave_up_) {
      heartbeat_->completed(first->terms, first->group->name);
    }
    begun_at_.reset();
    mark_.reset();
    const std::lock_guard lock(mutex_);
    if (!flights_.empty()) flights_.pop_front();
  }
}

std::string Watchdog::fault_of_cliques() {
  std::vector<std::shared_ptr<Clique>> cliques;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& clique : cliques_) cliques.push_back(clique.lock());
  }
  for (const auto& clique : cliques) {
    std::string text = clique == nullptr ? "" : clique->fault();
    if (!text.empty()) return text;
  }
  return "";
}

void Watchdog::look() {
  const Flight* first = first_under_way();
  if (first == nullptr || gave_up_) return;
  if (lifeline_->raised()) {
    return give_up(str(describe(*first), " stopped: ", lifeline_->text()));
  }
  if (const std::string fault = fault_of_cliques(); !fault.empty()) {
    const std::string text = str(describe(*first), ": ", fault);
    lifeline_->raise(text);
    return give_up(text);
  }
  if (!begun_at_) {
    if (!first->begun.query()) return;
    begun_at_ = Clock::now();
    mark_.emplace(*lifeline_);
  }
  lifeline_->beat();
  if (Clock::now() - *begun_at_ >= first->deadline) expire(*first);
}

void Watchdog::expire(const Flight& flight) {
  const auto stop = [&] { return is_done(flight) || lifeline_->raised(); };
  const std::vector<int> missing = missing_among(*lifeline_, flight.group->others, stop);
  if (stop()) return;  // seen at the next look
  const std::string text =
      str(describe(flight), ": no progress for ", comm::describe(flight.deadline), ": waiting for ",
          name_ranks(missing));
  lifeline_->raise(text);
  give_up(text);
}

void Watchdog::give_up(const std::string& why) noexcept {
  if (gave_up_.exchange(true)) return;
  try {
    fail_(std::make_exception_ptr(CommError(why + heartbeats_for_error(heartbeat_))));
  } catch (...) {  // out of memory: the abort counts, not its text
  }
  std::vector<std::weak_ptr<Clique>> cliques;
  {
    const std::lock_guard lock(mutex_);
    cliques.swap(cliques_);
  }
  for (const auto& known : cliques) {
    if (const std::shared_ptr<Clique> clique = known.lock()) clique->break_off();
  }
}

}  // namespace zinc::comm
