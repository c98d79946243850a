#include "comm/mpi/control_channel.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/mpi/checked.h"

namespace zinc::comm {
namespace {

constexpr int kControlTag = 1;
// A rank between two collectives looks for notes every 50 ms (session_thread.cpp).
constexpr std::chrono::milliseconds kAnswerTime{200};

}  // namespace

bool ControlChannel::accept_fault(int world_rank, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (raised_.load()) return false;
  text_ = str("rank ", world_rank, ": ", reason);
  raised_.store(true);
  return true;
}

void ControlChannel::raise(std::string_view reason) noexcept {
  try {
    if (!accept_fault(rank_, reason)) return;
    Note note{.kind = Kind::fault, .rank = rank_};
    note.length = static_cast<uint32_t>(std::min(reason.size(), note.text.size()));
    std::memcpy(note.text.data(), reason.data(), note.length);
    for (int to = 0; to < size_; ++to) {
      if (to != rank_) queue(to, note);
    }
    if (wake_) wake_();
  } catch (...) {  // out of memory: the peers' deadlines remain
    raised_.store(true);
  }
}

std::string ControlChannel::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::vector<int> ControlChannel::waiting_among(const std::vector<int>& world_ranks,
                                               const std::function<bool()>& stop) {
  constexpr int kPolls = 10;
  {
    const std::lock_guard lock(mutex_);
    answered_waiting_.assign(static_cast<size_t>(size_), false);
  }
  for (const int to : world_ranks) {
    if (to != rank_) queue(to, {.kind = Kind::question, .rank = rank_});
  }
  if (wake_) wake_();
  for (int i = 0; i < kPolls && !stop(); ++i) std::this_thread::sleep_for(kAnswerTime / kPolls);
  const std::lock_guard lock(mutex_);
  std::vector<int> waiting;
  for (const int r : world_ranks) {
    if (answered_waiting_[static_cast<size_t>(r)]) waiting.push_back(r);
  }
  return waiting;
}

void ControlChannel::say_farewell() {
  for (int to = 0; to < size_; ++to) {
    if (to != rank_) queue(to, {.kind = Kind::farewell, .rank = rank_});
  }
}

bool ControlChannel::all_said_farewell() const {
  const std::lock_guard lock(mutex_);
  for (size_t r = 0; r < said_farewell_.size(); ++r) {
    if (r != static_cast<size_t>(rank_) && !said_farewell_[r]) return false;
  }
  return true;
}

bool ControlChannel::has_outgoing() const {
  const std::lock_guard lock(mutex_);
  return !to_send_.empty();
}

void ControlChannel::queue(int to, const Note& note) {
  const std::lock_guard lock(mutex_);
  to_send_.push_back({.to = to, .note = note});
}

void ControlChannel::open(MPI_Comm world) {
  check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  said_farewell_.assign(static_cast<size_t>(size_), false);
  answered_waiting_.assign(static_cast<size_t>(size_), false);
  receive();
}

void ControlChannel::receive() {
  check_mpi(MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, kControlTag, comm_,
                      &receiving_),
            "MPI_Irecv of a control note");
}

void ControlChannel::poll() {
  int done = 0;
  check_mpi(MPI_Test(&receiving_, &done, MPI_STATUS_IGNORE), "MPI_Test of a control note");
  while (done != 0) {
    const Note note = incoming_;
    receive();
    handle(note);
    check_mpi(MPI_Test(&receiving_, &done, MPI_STATUS_IGNORE), "MPI_Test of a control note");
  }
  std::deque<Outgoing> fresh;
  {
    const std::lock_guard lock(mutex_);
    fresh.swap(to_send_);
  }
  for (Outgoing& outgoing : fresh) {
    // A deque's elements stay where they are while others are pushed and popped at its ends.
    Outgoing& kept = sending_.emplace_back(std::move(outgoing));
    check_mpi(MPI_Isend(&kept.note, sizeof kept.note, MPI_BYTE, kept.to, kControlTag, comm_,
                        &kept.request),
              "MPI_Isend of a control note");
  }
  while (!sending_.empty()) {
    check_mpi(MPI_Test(&sending_.front().request, &done, MPI_STATUS_IGNORE),
              "MPI_Test of a control note");
    if (done == 0) break;
    sending_.pop_front();
  }
}

void ControlChannel::handle(const Note& note) {
  switch (note.kind) {
    case Kind::fault:
      accept_fault(note.rank, std::string_view(note.text.data(), note.length));
      break;
    case Kind::question:
      queue(note.rank, {.kind = Kind::answer, .rank = rank_, .value = waiting_.load() > 0 ? 1 : 0});
      break;
    case Kind::answer: {
      const std::lock_guard lock(mutex_);
      answered_waiting_[static_cast<size_t>(note.rank)] = note.value != 0;
      break;
    }
    case Kind::farewell: {
      const std::lock_guard lock(mutex_);
      said_farewell_[static_cast<size_t>(note.rank)] = true;
      break;
    }
  }
}

void ControlChannel::flush(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    poll();
    std::this_thread::yield();
  } while ((has_outgoing() || !sending_.empty()) && std::chrono::steady_clock::now() < end);
}

void ControlChannel::close() {
  flush(std::chrono::seconds(1));
  check_mpi(MPI_Cancel(&receiving_), "MPI_Cancel");
  check_mpi(MPI_Wait(&receiving_, MPI_STATUS_IGNORE), "MPI_Wait");
  check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
}

}  // namespace zinc::comm
