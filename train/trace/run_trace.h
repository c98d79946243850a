// train/trace/run_trace.h: the trace of a program: what one rank's recorder holds goes to a file
// now and then, and the rest at the end.
#pragma once

#include <memory>
#include <string>

#include "comm/world.h"
#include "core/trace.h"
#include "train/trace/trace_writer.h"

namespace zinc::train {

class RunTrace {
 public:
  // In free_trace_name(): a program says later whether its run goes on. Ranks of one host share the
  // file; between hosts each has one of its own, with ".rank<r>", because appending is not safe on
  // every file system. Collective. Throws IoError, on the ranks that can write PeerFailed.
  static std::shared_ptr<RunTrace> open(const std::string& path, comm::World& world);
  // Writes what is left. The closing bracket, which the format does not need, is left out where
  // other ranks may still append.
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  TraceRecorder& recorder() { return recorder_; }
  // By the thread that opened it. Throws IoError.
  void drain() { writer_.drain(recorder_); }

 private:
  RunTrace(const std::string& path, const TraceWriterOptions& options, bool alone)
      : alone_(alone), writer_(path, options) {}

  bool alone_;
  TraceRecorder recorder_;
  TraceWriter writer_;
};

}  // namespace zinc::train
