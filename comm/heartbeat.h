// comm/heartbeat.h: a file per rank that says what the rank issued and completed last.
//
// The file is mapped memory: an update costs no system call, and what it says outlives the process.
// It is text of fixed places, so that `tail` on the directory shows where every rank is:
//   rank 2 of 4, process 4711
//   issued    all_gather #17 (1024 x f32) of world, at 1700000000.123
//   completed reduce_scatter #16 (4096 x bf16) of world, at 1700000000.119
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/call.h"

namespace zinc::comm {

class Heartbeat {
 public:
  // Writes `directory`/rank_<rank>.heartbeat, which it replaces; the directory is made where it is
  // missing. Throws IoError.
  Heartbeat(const std::string& directory, int world_rank, int world_size);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Any thread.
  void issued(const Terms& terms, std::string_view group) noexcept;
  void completed(const Terms& terms, std::string_view group) noexcept;

  // What the files of the directory say, one line a rank, as far as they can be read.
  std::string table() const;
  std::string lines_of(int rank) const;
  int world_size() const { return world_size_; }

 private:
  void write(int line, std::string_view text, const Terms& terms, std::string_view group) noexcept;

  std::string directory_;
  int world_size_;
  std::mutex mutex_;
  std::shared_ptr<char> page_;
};

// For the end of an error's text: a heading and the table; empty where there is no heartbeat. Reads
// for at most this long, as the folder may be of a machine that hangs and the job is to end, and
// says where the table breaks off.
inline constexpr std::chrono::milliseconds kHeartbeatReadTime{500};
std::string heartbeats_for_error(const std::shared_ptr<const Heartbeat>& heartbeat);

// The text of one rank's file without the filling; empty where there is none.
std::string read_heartbeat(const std::string& directory, int world_rank);

}  // namespace zinc::comm
