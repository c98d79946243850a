// zero/training_state.h: what an engine needs to go on where another has stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/parameter.h"
#include "core/shape.h"
#include "core/view.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"

namespace zinc::zero {

// Between steps; the same on all ranks.
struct TrainingState {
  int64_t steps = 0;              // optimizer steps, skipped ones included
  int64_t applied = 0;            // updates
  int64_t consecutive_skips = 0;  // up to now
  optim::LossScalerState loss_scale;
  bool is_loss_scale_dynamic = false;  // false: the configuration says it
  optim::ScheduleState schedule;
  std::string optimizer;           // its name: "AdamW"
  std::vector<std::string> kinds;  // of values: kWeightsKind, and its states' names

  int64_t skipped() const { return steps - applied; }
};

// The kind of the values that the optimizer works on; its states' kinds are their own names.
inline constexpr std::string_view kWeightsKind = "weights";

// What of a state is taken over.
struct ImportOptions {
  bool optimizer_states = true;
  bool counters = true;  // steps, loss scale, schedule
  // False: what the source has not, or in another shape, stays as it is.
  bool strict = true;
};

// Values of every parameter by kind. Each rank reads what it keeps, perhaps more than once.
class StateSource {
 public:
  virtual ~StateSource() = default;
  virtual const TrainingState& state() const = 0;
  // The shape of the parameter; absent: the source has no such kind of it.
  virtual std::optional<Shape> shape_of(std::string_view name, std::string_view kind) const = 0;
  // Elements [begin, begin + out.numel()), flat row-major, converted to out's dtype. out: [n]
  // contiguous host memory.
  virtual void read(std::string_view name, std::string_view kind, int64_t begin,
                    View out) const = 0;
};

}  // namespace zinc::zero
