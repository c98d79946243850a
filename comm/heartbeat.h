// comm/heartbeat.h: a file per rank that says what the rank issued and completed last.
//
// The file is mapped memory: an update costs no system call, and the text outlives the process.
// Every field has a fixed place, so `tail` on the directory shows where every rank is:
//   rank 2 (data 1, pipe 0) of 4, process 4711
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
  // Writes `directory`/rank_<rank>.heartbeat and replaces an older file. Makes the directory if it
  // is missing. Throws IoError.
  Heartbeat(const std::string& directory, int world_rank, int world_size);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Sets the file's name for the rank: "rank 2 (data 1, pipe 0)". Any thread, as the next two.
  void call_it(std::string_view name) noexcept;
  void issued(const Terms& terms, std::string_view group) noexcept;
  void completed(const Terms& terms, std::string_view group) noexcept;

  // The contents of the directory's files, one line per rank, as far as they can be read.
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

// A heading and the table, for the end of an error's text; empty without a heartbeat. Reads for at
// most kHeartbeatReadTime, because the folder may be on a machine that hangs while the job should
// end. Says where the table breaks off.
inline constexpr std::chrono::milliseconds kHeartbeatReadTime{500};
std::string heartbeats_for_error(const std::shared_ptr<const Heartbeat>& heartbeat);

// The text of one rank's file without the filling; empty where there is none.
std::string read_heartbeat(const std::string& directory, int world_rank);

}  // namespace zinc::comm
