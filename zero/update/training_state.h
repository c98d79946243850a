// zero/update/training_state.h: what an engine needs to continue the training of another engine.
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

// The state between two steps; equal on all ranks.
struct TrainingState {
  int64_t steps = 0;              // optimizer steps, skipped steps included
  int64_t applied = 0;            // updates
  int64_t reset_at = 0;           // updates that came before the optimizer's states began anew
  int64_t consecutive_skips = 0;  // skipped steps in a row, up to now
  optim::LossScalerState loss_scale;
  bool is_loss_scale_dynamic = false;  // false: the configuration gives the loss scale
  optim::ScheduleState schedule;
  bool apart = false;  // the weights are not those for use: Note [Weights for use] in engine.h
  std::vector<double> carried;     // by the optimizer, group by group: Optimizer::num_carried()
  std::string optimizer;           // the optimizer's name: "AdamW"
  std::vector<std::string> kinds;  // kinds of values: kWeightsKind, names of states

  int64_t skipped() const { return steps - applied; }
};

// The kind of the values that the optimizer works on. The kind of a state is the state's name.
inline constexpr std::string_view kWeightsKind = "weights";

// The parts of a source that an engine takes over.
struct ImportOptions {
  // False: they stay as they are, and with `counters` the optimizer counts its updates anew.
  bool optimizer_states = true;
  bool counters = true;  // steps, loss scale, schedule
  // False: what signs left out begins at zero: Note [Sums as signs] in zero/group/sign_sums.h. It
  // belongs to as many ranks as there were.
  bool sign_errors = true;
  // False: values that the source lacks, or has in another shape, stay as they are.
  bool strict = true;
};

// Gives values of every parameter, by kind. Each rank reads what it keeps, perhaps more than once.
class StateSource {
 public:
  virtual ~StateSource() = default;
  virtual const TrainingState& state() const = 0;
  // The shape of a parameter's values of this kind; absent if the source has none.
  virtual std::optional<Shape> shape_of(std::string_view name, std::string_view kind) const = 0;
  // Reads elements [begin, begin + out.numel()), flat row-major, converted to out's dtype. out:
  // [n], contiguous host memory.
  virtual void read(std::string_view name, std::string_view kind, int64_t begin,
                    View out) const = 0;
};

}  // namespace zinc::zero
