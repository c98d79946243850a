// zero/update/update_rules.h: the hyper-parameters that each element is updated with.
//
// Parameter groups are the optimizer's; shard groups are those that move together. A parameter
// group may hold parameters of any shard groups: an update of a range is cut where the parameter
// group changes, which changes no bit.
#pragma once

#include <span>
#include <vector>

#include "core/context.h"
#include "nn/module.h"
#include "optim/optimizer.h"
#include "optim/parameter_groups.h"
#include "optim/schedule.h"
#include "tensor/tensor.h"
#include "zero/layout/shard_group.h"
#include "zero/update/update_gate.h"

namespace zinc::zero {

class UpdateRules {
 public:
  // `groups`: the client's, which then hold every trained parameter of the model exactly once;
  // empty: those that decay and those that do not, with `hyper`. The learning rate of a group is
  // that of the schedule times the group's own over that of `hyper`. Throws InvalidArgument with
  // the parameter's name.
  UpdateRules(nn::Module& model, const std::vector<ShardGroup>& shard_groups,
              std::vector<optim::ParameterGroup> groups, const optim::HyperParameters& hyper);

  // For the updates of the next step.
  void follow(const optim::Schedule& schedule);

  // For an optimizer with scalars: brings those of the step-th step, for which follow() was called,
  // to device memory, from which all updates take them from now on; on the compute stream. So an
  // update that is recorded follows later steps.
  void bring_scalars(const optim::Optimizer& optimizer, int64_t step);

  // `whole` updates [range) of a shard group's arena, within one segment. Issues it, as one update
  // per parameter group that it meets.
  void update(const optim::Optimizer& optimizer, const optim::Update& whole, int shard_group,
              Range range, StreamRef stream) const;

  // update() waits here for whoever holds what it is going to change.
  UpdateGate& gate() { return gate_; }
  const UpdateGate& gate() const { return gate_; }

  // The same on ranks with the same groups.
  uint64_t hash() const;

 private:
  struct Piece {
    Range range;  // of the arena, padding included
    size_t group = 0;
  };

  std::vector<optim::ParameterGroup> groups_;
  std::vector<double> lr_scales_;              // by group
  std::vector<optim::HyperParameters> hyper_;  // by group, of the next step
  std::vector<std::vector<Piece>> pieces_;     // by shard group, in order
  Tensor scalars_;                             // [groups, num_scalars] f32, or undefined
  UpdateGate gate_;
};

}  // namespace zinc::zero
