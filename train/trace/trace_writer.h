// train/trace/trace_writer.h: events of a rank as Chrome trace JSON (the "Trace Event Format", JSON
// array form), which Perfetto and chrome://tracing open.
//
// A process of the trace is a rank, its threads are lanes: host (the issuing thread), compute,
// gather, reduce, copy_in, copy_out. Times are microseconds of the host's monotonic clock. One line
// is one event, written whole; a file whose run was killed lacks the last bracket only, which the
// format allows.
//   spans     "X": cat is the TraceKind, args hold id, group, bytes, and waited_for and span (ids)
//   arrows    "s" and "f": from the end of the event that was waited for
//   counters  "C": live bytes of a label
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/trace.h"
#include "files/file_descriptor.h"

namespace zinc::train {

struct TraceWriterOptions {
  int rank = 0;
  bool begins = true;  // makes the file anew; false: appends to one that a rank has begun
};

// Ranks of one host may append to one file: every write is of whole lines behind its end. One
// thread uses a writer.
class TraceWriter {
 public:
  // Throws IoError where the file cannot be written, and with EEXIST if it holds something that is
  // no trace of zinc, which is never replaced.
  TraceWriter(std::string path, const TraceWriterOptions& options);

  // Takes the events of `recorder` and appends them to the file. Throws IoError.
  void drain(TraceRecorder& recorder);
  // The last bracket, by one rank, when all have drained. Nothing may follow.
  void finish();

 private:
  struct Place {
    int lane = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  void add_lanes();
  void add(const TraceEvent& event);
  void add_slice(const TraceEvent& event);
  void add_arrow(const TraceEvent& event);
  void remember(const TraceEvent& event);
  void begin_event(char phase, std::string_view category, int64_t at_ns, int lane);
  void flush();

  std::string path_;
  int rank_;
  files::FileDescriptor file_;
  std::string buffer_;
  int64_t dropped_ = 0;
  // The places of recent events, for arrows: this generation and the one before.
  std::unordered_map<uint64_t, Place> recent_;
  std::unordered_map<uint64_t, Place> older_;
};

// "trace.json" and "from-step-000120": "trace.from-step-000120.json".
std::string trace_name(const std::string& path, std::string_view mark);
// `path`, or if that exists "trace-2.json", "trace-3.json" and so on: the first free name, also for
// ranks with separate files. An empty file and a device are free.
std::string free_trace_name(const std::string& path);

}  // namespace zinc::train
