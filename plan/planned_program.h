// plan/planned_program.h: the step program of a plan, in a form for people and programs.
//
// Note [The step program] in zero/program/program.h explains step programs. Bytes and times are
// those of the plan's second step: the bytes that a rank has taken on the device behind a place,
// and the clock of the time model there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/context.h"
#include "core/device.h"
#include "core/work_log.h"
#include "files/json/value.h"
#include "plan/playback.h"
#include "zero/rewrites/step_program.h"

namespace zinc::plan {

struct PlannedBytes {
  Tier tier = Tier::device;
  Label label = Label::parameters;
  int64_t bytes = 0;
};

struct PlannedPlace {
  std::string body;   // "evaluation", "only", "first", "middle", "last"; "step"
  std::string phase;  // "forward" or "backward"
  std::string event;  // "use of transformer.h.0.attn.c_attn.weight"
  std::string group;  // the group of the place; empty at a begin and an end
  std::vector<std::string> before, after;  // "gather transformer.h.0"
  std::optional<int64_t> device_bytes{};
  // Since the step began: when the compute stream has done all that was issued before.
  std::optional<double> seconds{};
  std::vector<PlannedBytes> bytes{};  // the labels that are not zero; empty as device_bytes
};

// An op that a rewrite added or took away.
struct PlannedChange {
  size_t place = 0;  // index in PlannedProgram::places
  bool behind = false, added = false;
  std::string op;
};

// A rewrite, and the run that has it and those before it.
struct PlannedRewrite {
  std::string name;
  int64_t added = 0, removed = 0;  // ops
  int64_t device_peak = 0;
  std::optional<double> step_seconds{};
  std::vector<PlannedChange> changes{};  // at places of the program
};

// A stretch of the step in which a stream did one work, or waited for another stream.
struct PlannedSpan {
  std::string stream, work;  // empty: it waited
  std::string waits_for;
  double begin = 0.0, end = 0.0;  // seconds since the step began
  std::optional<size_t> place;    // index in PlannedProgram::places, behind which it was issued
};

// The work of a rank of a pipeline in a step.
struct PlannedPipeline {
  int rank = 0, size = 1;
  int parts = 1;                   // of each rank
  std::string schedule;            // "1f1b"
  std::vector<std::string> order;  // "receive input of micro-batch 2"
  // By rank, by turn of one pass: "F2", "B1", "W1", of one of several parts "F2.1", or empty while
  // the rank is idle.
  std::vector<std::vector<std::string>> turns;
};

struct PlannedProgram {
  uint64_t hash = 0;
  std::optional<PlannedPipeline> pipeline{};
  std::vector<PlannedRewrite> rewrites;
  std::vector<PlannedPlace> places;
  std::vector<PlannedSpan> spans;  // in the order of their ends; empty without times
};

// The times of a step's places, in the order of ProgramWatch's marks, and the work that took time;
// both since the step began.
struct TimedStep {
  std::vector<double> places;
  std::vector<PlayedSpan> spans;
};

// Looks at the places of a program as the steps of a plan come by.
class ProgramWatch {
 public:
  // The label of the marks that timed visits leave in the log.
  static constexpr std::string_view kMark = "place";

  ProgramWatch(Context& context, WorkLog& log) : context_(context), log_(log) {}
  // Visits a place. Of its visits the last one before freeze() counts, or if there is none, the
  // first one after it. Between begin_timed() and freeze() visits leave marks.
  void visit(const zero::Phase& phase, size_t place);
  void begin_timed() { is_timed_ = true; }
  void freeze();
  // `timed`: empty: no times. Rewrites have their changes alone.
  PlannedProgram read(const zero::StepProgram& program, const TimedStep& timed) const;

 private:
  struct Visit {
    MemoryReport memory;
    std::optional<size_t> mark;
  };
  Context& context_;
  WorkLog& log_;
  using Key = std::pair<const zero::Phase*, size_t>;
  std::map<Key, Visit> visits_;
  std::vector<Key> marks_;  // by mark
  bool is_timed_ = false, is_frozen_ = false;
};

// Time down the page, lanes across, bytes at the right; places without ops, whose group is that of
// the place before, are one line.
std::string describe(const PlannedProgram& program);
std::string json_of(const PlannedProgram& program);
// One page for a browser that needs no other file: time down, lanes across, waits, memory by label,
// the changes of each rewrite. `other`: null, or the result of json_of() for a program that is
// drawn beside it.
struct OtherProgram {
  std::string name;
  const files::json::Value* program = nullptr;
};
std::string html_of(const PlannedProgram& program, std::string_view name,
                    const OtherProgram& other = {});
// Ops that only one of the two has, place by place, and how the figures differ. `other`: a result
// of json_of(). Throws DataError for any other value.
std::string describe_difference(const PlannedProgram& program, const files::json::Value& other);

}  // namespace zinc::plan
