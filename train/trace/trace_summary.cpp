#include "train/trace/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "files/json/writer.h"
#include "offload/swap_space.h"
#include "train/metrics/progress.h"

namespace zinc::train {
namespace {

constexpr int kComputeLane = 1;
constexpr double kMicro = 1e-6;

using Intervals = std::vector<std::pair<double, double>>;

// Sorted and without overlap.
Intervals merged(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  Intervals out;
  for (const auto& [begin, end] : intervals) {
    if (!out.empty() && begin <= out.back().second) {
      out.back().second = std::max(out.back().second, end);
    } else {
      out.emplace_back(begin, end);
    }
  }
  return out;
}

double length(const Intervals& intervals) {
  double sum = 0.0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

double overlap(const Intervals& a, const Intervals& b) {
  double sum = 0.0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    if (a[i].second < b[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

bool is_communication(const TraceSlice& slice) {
  return slice.kind == "gather" || slice.kind == "prefetch" || slice.kind == "reduce" ||
         slice.kind == "publish" || slice.kind == "exchange";
}

// Whether the slice is a transfer from or to the disk. Copies between host and device have the same
// kinds, on other lanes.
bool is_disk_transfer(const TraceSlice& slice) {
  return slice.lane == offload::kReadLane || slice.lane == offload::kWriteLane;
}

class RankReader {
 public:
  RankReader(int rank, const std::vector<TraceSlice>& slices) : rank_(rank), slices_(slices) {
    for (const TraceSlice& slice : slices) {
      if (slice.id != 0) by_id_.emplace(slice.id, &slice);
    }
  }

  std::vector<StepSummary> steps() const {
    std::vector<const TraceSlice*> marks;
    for (const TraceSlice& slice : slices_) {
      if (slice.kind == "step") marks.push_back(&slice);
    }
    const auto earlier = [](const TraceSlice* a, const TraceSlice* b) {
      return a->begin < b->begin;
    };
    std::sort(marks.begin(), marks.end(), earlier);
    std::vector<std::vector<const TraceSlice*>> parts(marks.size());
    for (const TraceSlice& slice : slices_) {
      const auto after = std::upper_bound(marks.begin(), marks.end(), &slice, earlier);
      if (after == marks.begin()) continue;
      const auto index = static_cast<size_t>(after - marks.begin()) - 1;
      if (slice.begin < marks[index]->end) parts[index].push_back(&slice);
    }
    std::vector<StepSummary> steps;
    for (size_t i = 0; i < marks.size(); ++i) steps.push_back(summarize(*marks[i], parts[i]));
    return steps;
  }

 private:
  StepSummary summarize(const TraceSlice& mark,
                        const std::vector<const TraceSlice*>& slices) const {
    StepSummary step{.rank = rank_, .step = mark.step};
    step.seconds = (mark.end - mark.begin) * kMicro;
    Intervals compute;
    Intervals communication;
    Intervals swap;
    for (const TraceSlice* slice : slices) {
      const double end = std::min(slice->end, mark.end);
      if (is_communication(*slice)) {
        communication.emplace_back(slice->begin, end);
        count(*slice, step);
      } else if (is_disk_transfer(*slice)) {
        swap.emplace_back(slice->begin, end);
        (slice->kind == "swap_in" ? step.swapped_in_bytes : step.swapped_out_bytes) += slice->bytes;
      } else if (slice->kind == "compute" && slice->lane == kComputeLane && slice->span == 0) {
        compute.emplace_back(slice->begin, end);
      } else if (slice->kind == "stall" && slice->lane <= kComputeLane) {
        step.stall += (end - slice->begin) * kMicro;
        step.stall_by_cause[cause_of(*slice)] += (end - slice->begin) * kMicro;
      }
    }
    compute = merged(std::move(compute));
    communication = merged(std::move(communication));
    step.swap = length(merged(std::move(swap))) * kMicro;
    step.compute = length(compute) * kMicro;
    step.communication = length(communication) * kMicro;
    step.exposed_communication = step.communication - overlap(communication, compute) * kMicro;
    return step;
  }

  static void count(const TraceSlice& slice, StepSummary& step) {
    if (slice.kind == "prefetch") ++step.gathers_ahead;
    if (slice.kind == "gather") ++step.gathers_on_demand;
    int64_t& bytes = slice.kind == "reduce"     ? step.reduced_bytes
                     : slice.kind == "exchange" ? step.exchanged_bytes
                                                : step.gathered_bytes;
    bytes += slice.bytes;
  }

  const TraceSlice* find(int64_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second;
  }

  std::string cause_of(const TraceSlice& stall) const {
    if (stall.waited_for == 0) return stall.name;  // for work that is in no lane
    const TraceSlice* producer = find(stall.waited_for);
    if (producer == nullptr) return "unknown";
    const TraceSlice* span = producer->span == 0 ? nullptr : find(producer->span);
    return span == nullptr ? producer->name : span->name;
  }

  int rank_;
  const std::vector<TraceSlice>& slices_;
  std::unordered_map<int64_t, const TraceSlice*> by_id_;
};

// The first word of every cause: "gather h.3" and "gather h.4" are both gathers.
std::map<std::string, double> by_kind(const std::map<std::string, double>& causes) {
  std::map<std::string, double> kinds;
  for (const auto& [cause, seconds] : causes) kinds[cause.substr(0, cause.find(' '))] += seconds;
  return kinds;
}

}  // namespace

double StepSummary::prefetch_hit_rate() const {
  const int64_t gathers = gathers_ahead + gathers_on_demand;
  return gathers == 0 ? 1.0 : static_cast<double>(gathers_ahead) / static_cast<double>(gathers);
}

TraceSummary summarize(const TraceFile& trace) {
  TraceSummary summary;
  summary.num_events = trace.num_events;
  summary.complete = trace.complete;
  for (const auto& [rank, slices] : trace.ranks) {
    for (StepSummary& step : RankReader(rank, slices).steps()) {
      summary.steps.push_back(std::move(step));
    }
  }
  std::stable_sort(summary.steps.begin(), summary.steps.end(),
                   [](const StepSummary& a, const StepSummary& b) { return a.step < b.step; });
  return summary;
}

TraceSummary summarize_trace_text(std::string text, const std::string& name) {
  return summarize(parse_trace(std::move(text), name));
}

TraceSummary summarize_trace(const std::string& path) { return summarize(read_trace(path)); }

std::string describe(const TraceSummary& summary) {
  std::string text = fmt::format(
      "{:>6} {:>5} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>10} {:>10}\n", "step", "rank", "ms",
      "compute", "comm", "exposed", "stall", "ahead", "gathered", "reduced");
  for (const StepSummary& step : summary.steps) {
    text += fmt::format(
        "{:>6} {:>5} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f} {:>7.1f}% {:>10} {:>10}\n",
        step.step, step.rank, step.seconds * 1e3, step.compute * 1e3, step.communication * 1e3,
        step.exposed_communication * 1e3, step.stall * 1e3, step.prefetch_hit_rate() * 100.0,
        format_bytes(step.gathered_bytes), format_bytes(step.reduced_bytes));
    if (step.exchanged_bytes > 0) {
      text += fmt::format("{:>12} sent {} to ranks of the same layer, sequence or pipeline\n", "",
                          format_bytes(step.exchanged_bytes));
    }
    if (step.swapped_in_bytes + step.swapped_out_bytes > 0) {
      text += fmt::format("{:>12} swapped {} in and {} out in {:.3f} ms\n", "",
                          format_bytes(step.swapped_in_bytes), format_bytes(step.swapped_out_bytes),
                          step.swap * 1e3);
    }
    for (const auto& [kind, seconds] : by_kind(step.stall_by_cause)) {
      text += fmt::format("{:>12} stalled {:.3f} ms for {}\n", "", seconds * 1e3, kind);
    }
  }
  if (!summary.complete) text += "the run did not end by itself: its last events may be missing\n";
  return text;
}

std::string json_of(const TraceSummary& summary) {
  files::json::Writer json;
  json.begin_object();
  json.member("events", summary.num_events).member("complete", summary.complete);
  json.key("steps").begin_array();
  for (const StepSummary& step : summary.steps) {
    json.begin_object();
    json.member("step", step.step).member("rank", step.rank).member("seconds", step.seconds);
    json.member("compute_seconds", step.compute);
    json.member("communication_seconds", step.communication);
    json.member("exposed_communication_seconds", step.exposed_communication);
    json.member("stall_seconds", step.stall);
    json.key("stall_seconds_by_cause").begin_object();
    for (const auto& [cause, seconds] : step.stall_by_cause) json.member(cause, seconds);
    json.end_object();
    json.member("prefetch_hit_rate", step.prefetch_hit_rate());
    json.member("gathers_ahead", step.gathers_ahead);
    json.member("gathers_on_demand", step.gathers_on_demand);
    json.member("gathered_bytes_sent", step.gathered_bytes);
    json.member("reduced_bytes_sent", step.reduced_bytes);
    json.member("exchanged_bytes_sent", step.exchanged_bytes);
    json.member("swap_seconds", step.swap);
    json.member("swapped_in_bytes", step.swapped_in_bytes);
    json.member("swapped_out_bytes", step.swapped_out_bytes);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace zinc::train
