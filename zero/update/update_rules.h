// zero/update/update_rules.h: the hyper-parameters with which each element is updated.
//
// A parameter group shares hyper-parameters; a shard group is gathered and reduced together. A
// parameter group may hold parameters of any shard groups. An update of a range is cut where the
// parameter group changes, or at every parameter. The cut changes no bit.
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
  // `groups`: a client's groups. Together they must hold every trained parameter of the model
  // exactly once. Empty: two groups with `hyper`, parameters that decay and parameters that do not.
  // The learning rate of a group is that of the schedule times the group's own rate over the rate
  // of `hyper`. `by_parameter`: updates are cut at every parameter, for an optimizer that asks for
  // optim::Update::site. Throws InvalidArgument with the parameter's name.
  UpdateRules(nn::Module& model, const ShardGroups& shard_groups,
              std::vector<optim::ParameterGroup> groups, const optim::HyperParameters& hyper,
              bool by_parameter = false);

  // Takes the hyper-parameters of the next step, whose update is number `step`, from `schedule`,
  // and what the optimizer carries to that update.
  void follow(const optim::Schedule& schedule, const optim::Optimizer& optimizer, int64_t step);
  // The update that follow() was called for was applied.
  void applied();
  // What the optimizer carries from the last applied update on: num_carried() numbers of each
  // group. Empty for set_carried(): all 0. Call between steps. Throws InvalidArgument for another
  // number of groups.
  std::vector<double> carried(const optim::Optimizer& optimizer) const;
  void set_carried(const optim::Optimizer& optimizer, std::span<const double> values);

  // For an optimizer with scalars: copies the scalars of step `step`, for which follow() was
  // called, to device memory, on the compute stream. All updates read them there from now on. So a
  // recorded update (CUDA graph) follows later steps.
  void bring_scalars(const optim::Optimizer& optimizer, int64_t step);

  // Elements that are updated alike.
  struct RuledRange {
    Range range;  // in a shard group's arena
    const optim::HyperParameters& hyper;
    ConstView scalars;        // the scalars of bring_scalars(); absent without them
    ConstView whole_scalars;  // the same of the optimizer's whole rule
    // optim::Update::site, first_element and places
    uint64_t site = 0;
    int64_t first_element = 0;
    kernels::ElementPlaces places{};
  };
  // The parts of a range of a shard group's arena, in order. The range lies in one segment.
  std::vector<RuledRange> ranges(int shard_group, Range range) const;

  // An update waits here while its values are read beside training.
  UpdateGate& gate() { return gate_; }
  const UpdateGate& gate() const { return gate_; }

  // Equal on ranks with equal groups.
  uint64_t hash() const;

 private:
  struct Piece {
    Range range;  // in the arena, padding included
    size_t group = 0;
    // `site` and `places` of the first parameter.
    uint64_t site = 0;
    kernels::ElementPlaces places{};
  };

  std::vector<optim::ParameterGroup> groups_;
  std::vector<double> lr_scales_;              // by group
  std::vector<optim::HyperParameters> hyper_;  // by group, for the next step
  std::vector<optim::Carried> carried_;        // by group, of the last applied update
  ByGroup<std::vector<Piece>> pieces_;         // by shard group, in order
  Tensor scalars_;                             // [groups, scalars of both rules] f32, or undefined
  int64_t own_scalars_ = 0;                    // Optimizer::num_scalars(), the first of a group
  UpdateGate gate_;
};

struct StepArguments {
  const optim::Optimizer& optimizer;
  const UpdateRules& rules;
  ConstView factor;  // [1] f32: optim::Update
  ConstView skip{};  // [1] i32 or absent: optim::Update; only if all states are on the device
  int64_t step = 1;  // optim::Update
};

}  // namespace zinc::zero
