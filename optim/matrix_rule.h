// optim/matrix_rule.h: update rules that look at whole matrices, such as Muon.
//
// An update of a matrix has three phases:
//
//   direct      of any range of elements   gradient and states become a direction
//   transform   of a whole matrix          the direction becomes a step
//   apply       of any range of elements   the step changes the weights
//
// The first and the last run where the states and weights of the range are: on a shard, in host
// memory, tile by tile. Between them the engine brings each matrix to one rank, its owner, and
// brings the step back. So the rule knows nothing of ranks, and its bits depend on none.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "optim/hyper_parameters.h"

namespace zinc::autograd {
class Parameter;
}

namespace zinc::optim {

struct Update;

class MatrixRule {
 public:
  virtual ~MatrixRule() = default;

  // True for a parameter that this rule updates; all others have the optimizer's own update(). Only
  // trained parameters of rank 2 are asked for: weights of linear layers in the model's blocks.
  virtual bool takes(const autograd::Parameter& parameter) const = 0;

  // The states of an element, in the dtype of Optimizer::states().
  virtual int num_states() const = 0;
  // Checkpoint names: "momentum_buffer". None of the optimizer's own states has the same.
  virtual std::string_view state_name(int i) const = 0;
  // The dtype of directions and steps, beside weights of `weights`: f32 | f64. At most as wide.
  virtual DType direction_dtype(DType weights) const { return weights; }

  // `args.direction` is written, states change in place; there are no weights. As
  // Optimizer::update(): asynchronous on `stream`, deterministic, element i depends on element i.
  virtual void direct(const Update& args, const HyperParameters& hyper, StreamRef stream) const = 0;
  // matrix: [rows, columns] direction_dtype(), contiguous, on the device: a direction, which
  // becomes a step in place. Asynchronous on `stream`, the compute stream. Memory it needs comes
  // from the current Context.
  virtual void transform(const View& matrix, const HyperParameters& hyper,
                         StreamRef stream) const = 0;
  // `args.gradient` is the step, whose factor is absent; there are no states. Weights change, and
  // their copy. As Optimizer::update().
  virtual void apply(const Update& args, const HyperParameters& hyper, StreamRef stream) const = 0;

  // Floating-point operations of transform(), by which matrices are shared out among ranks.
  virtual int64_t flops(int64_t rows, int64_t columns) const = 0;
};

}  // namespace zinc::optim
