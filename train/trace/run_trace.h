// train/trace/run_trace.h: the trace of a program: the events of one rank's recorder go to a file
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
  // Opens free_trace_name(path), since it is not known yet whether the run continues. Ranks of one
  // host share the file. With several hosts each rank has its own file, with ".rank<r>", because
  // appending is not safe on every file system. Collective. Throws IoError, on the ranks that can
  // write PeerFailed.
  static std::shared_ptr<RunTrace> open(const std::string& path, comm::World& world);
  // Writes the remaining events. The closing bracket, which the format does not need, is left out
  // where other ranks may still append.
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  TraceRecorder& recorder() { return recorder_; }
  // Called by the thread that opened it. Throws IoError.
  void drain() { writer_.drain(recorder_); }

 private:
  RunTrace(const std::string& path, const TraceWriterOptions& options, bool alone)
      : alone_(alone), writer_(path, options) {}

  bool alone_;
  TraceRecorder recorder_;
  TraceWriter writer_;
};

}  // namespace zinc::train
