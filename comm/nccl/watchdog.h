// comm/nccl/watchdog.h: a thread that looks after the collectives of a world on one GPU.
//
// The host does not wait for a collective of NCCL, and a GPU never gives up on one. This thread
// sees deadlines that pass, and failures on this rank and on others. It then fails the device, so
// that every wait for the device throws the reason, and aborts NCCL, so that the waits end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/call.h"
#include "comm/heartbeat.h"
#include "comm/lifeline.h"
#include "comm/nccl/clique.h"
#include "core/device.h"
#include "core/stream.h"

namespace zinc::comm {

// A group of ranks that has collectives under way.
struct Watched {
  std::string name;         // "world", "world/0"
  std::vector<int> others;  // the other members' ranks in the world
};

// A collective or message under way.
struct Flight {
  Terms terms;
  std::string message{};  // a message's description; empty: a collective
  std::shared_ptr<const Watched> group{};
  std::chrono::nanoseconds deadline{};
  Event begun{};                // this rank's stream has come to it
  std::optional<Event> done{};  // absent while it is being queued
};

class Watchdog {
 public:
  // `fail` fails the device: failure_of_device().
  Watchdog(Device device, std::shared_ptr<Lifeline> lifeline, std::shared_ptr<Heartbeat> heartbeat,
           std::function<void(std::exception_ptr)> fail);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Looks after `clique` for as long as it lives.
  void keep(const std::shared_ptr<Clique>& clique);
  // Flights end in the order of these calls. One thread calls watch() before it queues a flight,
  // and queued() after.
  void watch(Flight flight);
  void queued(const Event& done);
  // Ends everything that is under way; waits throw `why`. Any thread.
  void give_up(const std::string& why) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void look();
  const Flight* first_under_way();
  bool is_done(const Flight& flight);
  std::string fault_of_cliques();
  void expire(const Flight& flight);

  const Device device_;
  const std::shared_ptr<Lifeline> lifeline_;
  const std::shared_ptr<Heartbeat> heartbeat_;
  const std::function<void(std::exception_ptr)> fail_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::atomic<bool> gave_up_ = false;
  std::deque<Flight> flights_;  // this thread takes from the front; references stay valid
  std::vector<std::weak_ptr<Clique>> cliques_;

  // Since this rank's stream came to the first flight. Used by the watching thread alone.
  std::optional<Clock::time_point> begun_at_;
  std::optional<WaitingMark> mark_;

  std::thread thread_;
};

}  // namespace zinc::comm
