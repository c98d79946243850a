// optim/parameter_groups.h: groups of parameters that share hyper-parameters.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "optim/optimizer.h"

namespace zinc::optim {

struct ParameterGroup {
  std::string name;  // "decay", "no_decay", or the client's
  std::vector<autograd::Parameter*> parameters;
  HyperParameters hyper{};
};

// The default groups of the trainable parameters, in the order given. "decay": those with
// Parameter::decays(). "no_decay": the others, with a weight decay of 0. Frozen parameters and
// empty groups are left out. Throws InvalidArgument if a parameter comes twice.
std::vector<ParameterGroup> make_parameter_groups(std::span<autograd::Parameter* const> parameters,
                                                  const HyperParameters& hyper);

// The same with hyper-parameters of their own for `matrices`, the parameters that a whole rule
// takes: "matrices", and "matrices_no_decay" behind the other groups.
std::vector<ParameterGroup> make_parameter_groups(
    std::span<autograd::Parameter* const> parameters, const HyperParameters& hyper,
    const std::set<const autograd::Parameter*>& matrices, const HyperParameters& matrix_hyper);

// Checks a client's own groups: each parameter in one group and once, no frozen parameter, no empty
// or repeated name. Throws InvalidArgument with the parameter's name.
void check_parameter_groups(std::span<const ParameterGroup> groups);

}  // namespace zinc::optim
