#include "train/trace/trace_file.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "core/error.h"
#include "files/input_file.h"
#include "files/json/parser.h"

namespace zinc::train {
namespace {

struct Parsed {
  TraceFile file;
  bool ours = false;  // the first line that the writer puts down is there
};

int rank_of(const files::json::Value& event) {
  return static_cast<int>(event.at("pid").as_int64(0, 1 << 24));
}
int lane_of(const files::json::Value& event) {
  return static_cast<int>(event.at("tid").as_int64(0, 1 << 20));
}

int64_t integer_of(const files::json::Value* args, std::string_view key) {
  const files::json::Value* value = args == nullptr ? nullptr : args->find(key);
  return value == nullptr ? 0 : value->as_int64();
}

void add_event(Parsed& parsed, const files::json::Value& event) {
  TraceFile& trace = parsed.file;
  ++trace.num_events;
  const std::string& phase = event.at("ph").as_string();
  if (phase == "M" && event.at("name").is_string("zinc")) parsed.ours = true;
  if (phase == "M" && event.at("name").is_string("thread_name")) {
    const std::pair lane{rank_of(event), lane_of(event)};
    trace.lanes[lane] = event.at("args").at("name").as_string();
  }
  if (phase != "X") return;
  const files::json::Value* args = event.find("args");
  TraceSlice slice;
  slice.kind = event.at("cat").as_string();
  slice.name = event.at("name").as_string();
  slice.lane = lane_of(event);
  slice.begin = event.at("ts").as_double();
  slice.end = slice.begin + event.at("dur").as_double();
  slice.id = integer_of(args, "id");
  slice.span = integer_of(args, "span");
  slice.waited_for = integer_of(args, "waited_for");
  slice.bytes = integer_of(args, "bytes");
  slice.step = integer_of(args, "step");
  trace.ranks[rank_of(event)].push_back(std::move(slice));
}

// Reads the format of TraceWriter: a bracket, then one event a line, each but the last before a
// comma. The file of a run that was killed may hold a torn line for each of its ranks.
Parsed parse_lines(std::string_view text, const std::string& name) {
  Parsed parsed;
  TraceFile& trace = parsed.file;
  trace.complete = false;
  const bool ended = text.ends_with("\n]\n") || text.ends_with("\n]");
  int64_t number = 1;
  size_t torn = 0;
  size_t at = text.find('\n') + 1;
  while (at < text.size()) {
    ++number;
    const size_t end = std::min(text.find('\n', at), text.size());
    const bool last = end == text.size();
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line == "]") {
      trace.complete = true;
      if (at < text.size()) throw DataError(name + ": there is text behind the last bracket");
      break;
    }
    if (line.ends_with(",")) line.remove_suffix(1);
    std::optional<files::json::Value> event;
    try {
      event = files::json::parse(std::string(line), str(name, " (line ", number, ")"));
    } catch (const DataError&) {
      if (!last && (ended || ++torn > trace.ranks.size())) throw;
      continue;  // cut in the middle of a write
    }
    add_event(parsed, *event);
  }
  return parsed;
}

// Reads the format of other programs: an array, or an object that holds one.
Parsed parse_whole(std::string text, const std::string& name) {
  const files::json::Value root =
      files::json::parse(std::move(text), name,
                         {.max_bytes = int64_t{1} << 30, .max_values = int64_t{256} * 1'000'000});
  const files::json::Value& events = root.is_object() ? root.at("traceEvents") : root;
  Parsed parsed;
  for (const files::json::Value& event : events.as_array()) add_event(parsed, event);
  return parsed;
}

}  // namespace

TraceFile parse_trace(std::string text, const std::string& name) {
  Parsed parsed =
      text.starts_with("[\n") ? parse_lines(text, name) : parse_whole(std::move(text), name);
  if (!parsed.ours) throw DataError(name + ": this is no trace of zinc");
  return std::move(parsed.file);
}

TraceFile read_trace(const std::string& path) {
  const files::InputFile file = files::InputFile::open(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return parse_trace(std::move(text), path);
}

}  // namespace zinc::train
