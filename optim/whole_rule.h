// optim/whole_rule.h: update rules that look at whole parameters, such as Muon, LAMB and Adafactor.
//
// An update of a parameter has three phases:
//
//   direct      of any range of elements   gradient and states become a direction
//   transform   of a whole parameter       the direction becomes a step
//   apply       of any range of elements   the step changes the weights
//
// The first and the last run where the states and weights of the range are: on a shard, in host
// memory, tile by tile. Between them the engine brings each parameter to one rank, its owner, and
// brings the step back. A rule that has no second phase, as LAMB, moves nothing. So the rule knows
// nothing of ranks, and its bits depend on none.
//
// What else a rule may know of a whole parameter: sums of squares, which the engine adds in f64
// over the fixed tree of the gradient norm, and vectors, states that an owner keeps from step to
// step.
//
// Note [Steps that are queued once]
// A step may be queued once and run many times (a CUDA graph), and queued before it is known
// whether it changes anything. A rule with num_scalars() goes along: what changes from step to step
// comes from the device, in `scalars`, and with a `skip` that is not 0 no weight, state or vector
// changes. A rule with num_rates() makes its own numbers of the sums, on the device. A rule without
// gets the sums from the host, which waits for them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/stream.h"
#include "core/view.h"
#include "optim/hyper_parameters.h"

namespace zinc::autograd {
class Parameter;
}

namespace zinc::optim {

struct Update;

inline constexpr int kMaxVectors = 4;

// The figures of a whole parameter in one update. Sums of squares: WholeRule::measures(), of a rule
// without num_rates().
struct ParameterSums {
  double weights = 0.0;     // before the update
  double directions = 0.0;  // as direct() left them
  int64_t numel = 0;        // elements of the parameter
};

// A whole parameter, on its owner.
struct WholeParameter {
  // The parameter's shape, direction_dtype(), contiguous, on the device: a direction, which becomes
  // a step in place.
  View direction;
  std::array<View, kMaxVectors> vectors{};  // WholeRule::vector_shape(), to be changed
  ParameterSums sums{};
  int64_t step = 1;     // Update::step
  ConstView skip;       // Update::skip
  ConstView scalars{};  // Update::scalars
};

// The sums of a whole parameter, on the device.
struct MeasuredParameter {
  ConstView sums;       // [kinds] f64: of the weights, of the directions, those that are measured
  int64_t numel = 0;    // elements of the parameter
  int64_t step = 1;     // Update::step
  ConstView scalars{};  // Update::scalars
  View rates;           // [num_rates()] f32 (f64 beside weights of f64), overwrites
};

class WholeRule {
 public:
  virtual ~WholeRule() = default;

  // The parameters for which takes() is asked.
  enum class Asked : uint8_t {
    matrices,  // trained, of rank 2: weights of linear layers in the model's blocks
    all,       // trained
  };
  virtual Asked asked() const { return Asked::matrices; }
  // True for a parameter that this rule updates; all others have the optimizer's own update().
  virtual bool takes(const autograd::Parameter& parameter) const = 0;

  // The states of an element, in the dtype of Optimizer::states().
  virtual int num_states() const = 0;
  // Checkpoint names: "momentum_buffer". None of the optimizer's own states has the same.
  virtual std::string_view state_name(int i) const = 0;
  // The dtype of directions and steps, beside weights of `weights`: f32 | f64. At most as wide.
  virtual DType direction_dtype(DType weights) const { return weights; }

  // States of a whole parameter: they are f32 (f64 beside weights of f64), zero at first, and on
  // the device whatever the tier of the other states.
  virtual int num_vectors() const { return 0; }
  virtual std::string_view vector_name(int i) const;  // as state_name()
  // The shape of vector i of a parameter of shape `parameter`; absent: it has none.
  virtual std::optional<Shape> vector_shape(const Shape& parameter, int i) const;

  // The sums that the engine measures between direct() and transform().
  struct Measures {
    bool weights = false;  // then direct() sees weights too
    bool directions = false;
    bool any() const { return weights || directions; }
  };
  virtual Measures measures() const { return {}; }

  // Note [Steps that are queued once]. 0: the rule has no such form, and `scalars` and `skip` are
  // absent. Not for f64 weights.
  virtual int64_t num_scalars() const { return 0; }
  // Those of update `step`, as Optimizer::scalars().
  virtual void scalars(const HyperParameters& hyper, int64_t step, std::span<float> values) const {
    static_cast<void>(hyper);
    static_cast<void>(step);
    static_cast<void>(values);
  }
  // The number of values that rates() makes of the sums, for apply() to read in Update::rates. 0:
  // the host gets the sums, in Update::sums and WholeParameter::sums.
  virtual int64_t num_rates() const { return 0; }
  // Asynchronous on `stream`, the compute stream.
  virtual void rates(const MeasuredParameter& parameter, const HyperParameters& hyper,
                     StreamRef stream) const;

  // `args.direction` is written, states change in place; weights are there to be read, where they
  // are measured. As Optimizer::update(): asynchronous on `stream`, deterministic, element i
  // depends on element i.
  virtual void direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const = 0;
  // False: transform() is never called, a direction is a step, and nothing moves.
  virtual bool transforms() const { return true; }
  // Asynchronous on `stream`, the compute stream. Memory it needs comes from the current Context.
  virtual void transform(const WholeParameter& parameter, const HyperParameters& hyper,
                         StreamRef stream) const;
  // `args.gradient` is the step, whose factor is absent; there are no states. Weights change, and
  // their copy. As Optimizer::update(). The range lies in one parameter where sums are measured.
  virtual void apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const = 0;

  // Floating-point operations of transform() of a matrix, by which parameters are shared out among
  // ranks. A parameter of another rank is seen as [numel / last dimension, last dimension].
  virtual int64_t flops(int64_t rows, int64_t columns) const;
};

}  // namespace zinc::optim
