// comm/mpi/control_channel.h: small notes between the ranks of an MPI job, beside the collectives:
// failures, the question who is waiting, and farewell.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/lifeline.h"

namespace zinc::comm {

class ControlChannel final : public Lifeline {
 public:
  // Any thread.
  void raise(std::string_view reason) noexcept override;
  bool raised() const noexcept override { return raised_.load(); }
  std::string text() const override;
  void begin_waiting() noexcept override { waiting_.fetch_add(1); }
  void end_waiting() noexcept override { waiting_.fetch_sub(1); }
  void beat() noexcept override {}  // the communication thread answers
  // Asks the ranks; a rank whose communication thread does not answer is not waiting.
  std::vector<int> waiting_among(const std::vector<int>& world_ranks,
                                 const std::function<bool()>& stop) override;

  void say_farewell();
  bool all_said_farewell() const;
  bool has_outgoing() const;
  // Called whenever a note is to be sent.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

  // The next calls are made by the communication thread alone.
  void open(MPI_Comm world);
  // Sends queued notes and receives the notes that have come.
  void poll();
  // poll() until all queued notes have left this rank, at most for `limit`.
  void flush(std::chrono::milliseconds limit);
  void close();

 private:
  enum class Kind : int32_t { fault, question, answer, farewell };
  struct Note {
    Kind kind = Kind::fault;
    int32_t rank = 0;   // fault: where it was found; else the sender
    int32_t value = 0;  // answer: 1 where the sender waits
    uint32_t length = 0;
    std::array<char, 496> text{};
  };
  static_assert(sizeof(Note) == 512);
  struct Outgoing {
    int to = 0;
    Note note;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool accept_fault(int world_rank, std::string_view reason);
  void queue(int to, const Note& note);
  void receive();
  void handle(const Note& note);

  std::function<void()> wake_;
  std::atomic<bool> raised_ = false;
  std::atomic<int> waiting_ = 0;
  mutable std::mutex mutex_;
  std::string text_;
  std::deque<Outgoing> to_send_;
  std::vector<bool> answered_waiting_;
  std::vector<bool> said_farewell_;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  Note incoming_;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
  std::deque<Outgoing> sending_;
};

}  // namespace zinc::comm
