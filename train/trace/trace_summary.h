// train/trace/trace_summary.h: where the time of every step went, read off a trace.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/trace/trace_file.h"

namespace zinc::train {

// One step of one rank. Times in seconds; an event belongs to the step in which it begins.
struct StepSummary {
  int rank = 0;
  int64_t step = 0;
  double seconds = 0.0;
  double compute = 0.0;        // the compute lane ran something that is no part of a collective
  double communication = 0.0;  // at least one collective was under way
  double exposed_communication = 0.0;  // of the communication, while no compute ran
  double stall = 0.0;                  // the host or the compute lane waited
  // Seconds of stall by the work that ended it: "gather h.3", "reduce h.2", or a task's name.
  std::map<std::string, double> stall_by_cause;
  int64_t gathers_ahead = 0;      // prefetched before their group was asked for
  int64_t gathers_on_demand = 0;  // started when it was asked for
  int64_t gathered_bytes = 0;     // sent by this rank: gathers and published weights
  int64_t reduced_bytes = 0;      // sent by this rank for gradients
  // Sent by this rank to the ranks of its layers, sequence or pipeline.
  int64_t exchanged_bytes = 0;
  double swap = 0.0;              // at least one transfer from or to NVMe was under way
  int64_t swapped_in_bytes = 0;   // read from NVMe
  int64_t swapped_out_bytes = 0;  // written to it

  // 1 where nothing was gathered.
  double prefetch_hit_rate() const;
};

struct TraceSummary {
  std::vector<StepSummary> steps;  // by step, then by rank
  int64_t num_events = 0;
  bool complete = true;  // false: the run did not end by itself, its last bracket is missing
};

TraceSummary summarize(const TraceFile& trace);
// Throws IoError where the file cannot be read, DataError where it holds no trace of zinc. In an
// unfinished file one line of each rank may be cut.
TraceSummary summarize_trace(const std::string& path);
// `name` stands in messages.
TraceSummary summarize_trace_text(std::string text, const std::string& name);

std::string describe(const TraceSummary& summary);  // a table
std::string json_of(const TraceSummary& summary);

}  // namespace zinc::train
