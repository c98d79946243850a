// train/plan/planned_program.h: the step program of a plan, as people and programs read it.
//
// Note [The step program] in zero/program/program.h says what it is. Bytes and times are those of
// the plan's second step: what a rank has taken on the device behind a place, and what the clock of
// the time model shows there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/work_log.h"
#include "train/json/value.h"
#include "zero/passes/step_program.h"

namespace zinc::train {

struct PlannedPlace {
  std::string body;   // "evaluation", "only", "first", "middle", "last"; "step"
  std::string phase;  // "forward" or "backward"
  std::string event;  // "use of transformer.h.0.attn.c_attn.weight"
  std::string group;  // that it is about; empty at a begin and an end
  std::vector<std::string> before, after;  // "gather transformer.h.0"
  std::optional<int64_t> device_bytes{};
  std::optional<double> seconds{};  // since the step began
};

// A pass, and the run that has it and those before it.
struct PlannedPass {
  std::string name;
  int64_t added = 0, removed = 0;  // ops
  int64_t device_peak = 0;
  std::optional<double> step_seconds{};
};

struct PlannedProgram {
  uint64_t hash = 0;
  std::vector<PlannedPass> passes;
  std::vector<PlannedPlace> places;
};

// Looks at the places of a program as the steps of a plan come by.
class ProgramWatch {
 public:
  // The label of the marks that timed visits leave in the log.
  static constexpr std::string_view kMark = "place";

  ProgramWatch(Context& context, WorkLog& log) : context_(context), log_(log) {}
  // Which visits count: the last one before freeze(), and after it the first of places that were
  // not visited before. Between begin_timed() and freeze() they leave marks.
  void visit(const zero::Phase& phase, size_t place);
  void begin_timed() { is_timed_ = true; }
  void freeze();
  // `seconds`: of the marks in their order, since the timed step began; empty: no times.
  PlannedProgram read(const zero::StepProgram& program, const std::vector<double>& seconds) const;

 private:
  struct Visit {
    int64_t device_bytes = 0;
    std::optional<size_t> mark;
  };
  Context& context_;
  WorkLog& log_;
  std::map<std::pair<const zero::Phase*, size_t>, Visit> visits_;
  size_t num_marks_ = 0;
  bool is_timed_ = false, is_frozen_ = false;
};

// Time down the page, lanes across, bytes at the right; places without ops, whose group is that of
// the place before, are one line.
std::string describe(const PlannedProgram& program);
std::string json_of(const PlannedProgram& program);
// Ops that only one of the two has, place by place, and how the figures differ. `other`: what
// json_of() gave. Throws DataError where it is none.
std::string describe_difference(const PlannedProgram& program, const json::Value& other);

}  // namespace zinc::train
