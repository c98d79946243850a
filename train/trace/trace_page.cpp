#include "train/trace/trace_page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/error.h"
#include "files/fill_marks.h"
#include "files/json/writer.h"
#include "train/trace/trace_summary.h"

namespace zinc::train {
namespace {

constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max();

struct Span {
  double begin = 0.0, end = 0.0;  // microseconds
};

// A number for each text, in the order of first use.
class Names {
 public:
  int64_t of(const std::string& text) {
    const auto [found, is_new] = numbers_.emplace(text, std::ssize(all_));
    if (is_new) all_.push_back(text);
    return found->second;
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::map<std::string, int64_t> numbers_;
  std::vector<std::string> all_;
};

// The marks of the steps of all ranks, from the first begin to the last end.
std::map<int64_t, Span> spans_of_steps(const TraceFile& trace) {
  std::map<int64_t, Span> spans;
  for (const auto& [rank, slices] : trace.ranks) {
    for (const TraceSlice& slice : slices) {
      if (slice.kind != "step") continue;
      const auto [at, is_new] = spans.emplace(slice.step, Span{slice.begin, slice.end});
      at->second.begin = std::min(at->second.begin, slice.begin);
      at->second.end = std::max(at->second.end, slice.end);
    }
  }
  return spans;
}

int64_t count_within(const TraceFile& trace, const Span& span) {
  int64_t count = 0;
  for (const auto& [rank, slices] : trace.ranks) {
    count += std::ranges::count_if(slices, [&span](const TraceSlice& slice) {
      return slice.begin >= span.begin && slice.begin < span.end;
    });
  }
  return count;
}

// Chooses the steps; leaves their time in `span`.
TracePage choose(const TraceFile& trace, const std::string& name, const TracePageOptions& options,
                 Span& span) {
  std::map<int64_t, Span> steps = spans_of_steps(trace);
  std::erase_if(steps, [&options](const auto& step) {
    return step.first < options.first_step || step.first > options.last_step;
  });
  if (steps.empty()) {
    throw DataError(str(name, ": the trace has no step ", options.first_step, " to ",
                        options.last_step == kInfinite ? str("its end") : str(options.last_step)));
  }
  TracePage page{.first_step = steps.rbegin()->first, .last_step = steps.rbegin()->first};
  span = steps.rbegin()->second;
  int64_t drawn = 0;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const int64_t more = count_within(trace, step->second);
    if (drawn > 0 && drawn + more > options.most_slices) break;
    drawn += more;
    page.first_step = step->first;
    span.begin = std::min(span.begin, step->second.begin);
  }
  page.steps_left_out = std::distance(steps.begin(), steps.find(page.first_step));
  return page;
}

void write_steps(files::json::Writer& out, const TraceFile& trace, const TracePage& page,
                 double begin) {
  std::map<std::pair<int, int64_t>, Span> places;
  for (const auto& [rank, slices] : trace.ranks) {
    for (const TraceSlice& slice : slices) {
      if (slice.kind == "step") places[{rank, slice.step}] = {slice.begin, slice.end};
    }
  }
  out.key("steps").begin_array();
  for (const StepSummary& step : summarize(trace).steps) {
    if (step.step < page.first_step || step.step > page.last_step) continue;
    const Span& place = places[{step.rank, step.step}];
    out.begin_object().member("step", step.step).member("rank", step.rank);
    out.member("begin", place.begin - begin).member("end", place.end - begin);
    out.member("compute", step.compute).member("communication", step.communication);
    out.member("exposed", step.exposed_communication).member("stall", step.stall);
    out.end_object();
  }
  out.end_array();
}

// Times are whole tenths of a microsecond behind `span.begin`.
int64_t write_slices(files::json::Writer& out, const TraceFile& trace, const Span& span) {
  Names names, kinds;
  int64_t count = 0;
  const auto tenths = [&span](double at) { return std::llround(10.0 * (at - span.begin)); };
  out.key("ranks").begin_array();
  for (const auto& [rank, slices] : trace.ranks) {
    out.begin_object().member("rank", rank);
    out.key("lanes").begin_object();
    for (const auto& [place, name] : trace.lanes) {
      if (place.first == rank) out.member(str(place.second), name);
    }
    out.end_object();
    out.key("slices").begin_array();
    for (const TraceSlice& slice : slices) {
      if (slice.begin < span.begin || slice.begin >= span.end || slice.kind == "step") continue;
      ++count;
      out.begin_array().value(int64_t{slice.lane}).value(int64_t{tenths(slice.begin)});
      out.value(int64_t{tenths(slice.end) - tenths(slice.begin)});
      out.value(kinds.of(slice.kind)).value(names.of(slice.name)).value(slice.id);
      out.value(slice.span).value(slice.waited_for).value(slice.bytes).end_array();
    }
    out.end_array().end_object();
  }
  out.end_array();
  for (const auto& [key, list] : {std::pair{"kinds", &kinds}, std::pair{"names", &names}}) {
    out.key(key).begin_array();
    for (const std::string& text : list->all()) out.value(text);
    out.end_array();
  }
  return count;
}

}  // namespace

TracePage trace_page(const TraceFile& trace, const std::string& name,
                     const TracePageOptions& options) {
  Span span;
  TracePage page = choose(trace, name, options, span);
  files::json::Writer out;
  out.begin_object().member("name", name).member("complete", trace.complete);
  out.member("steps_left_out", page.steps_left_out);
  write_steps(out, trace, page, span.begin);
  page.slices = write_slices(out, trace, span);
  out.end_object();
  page.html = files::fill_marks(
      trace_page_html(),
      {{"@data@", files::json::without_markup(out.take())}, {"@script@", trace_page_script()}});
  return page;
}

}  // namespace zinc::train
