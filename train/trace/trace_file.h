// train/trace/trace_file.h: the events of a trace, for the table and the page that are made of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace zinc::train {

// Something that took time on a lane.
struct TraceSlice {
  std::string kind;
  std::string name;
  int lane = 0;
  double begin = 0.0;  // microseconds, as in the file
  double end = 0.0;
  int64_t id = 0;
  int64_t span = 0;
  int64_t waited_for = 0;
  int64_t bytes = 0;
  int64_t step = 0;
};

struct TraceFile {
  std::map<int, std::vector<TraceSlice>> ranks;
  std::map<std::pair<int, int>, std::string> lanes;  // names, by rank and lane
  int64_t num_events = 0;
  bool complete = true;  // false: the run did not end by itself, its last bracket is missing
};

// DataError where the text holds no trace of zinc. `name` stands in messages.
TraceFile parse_trace(std::string text, const std::string& name);
// Throws IoError where the file cannot be read.
TraceFile read_trace(const std::string& path);

}  // namespace zinc::train
