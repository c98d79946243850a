// optim/parameter_groups.h: which parameters share hyper-parameters.
#pragma once

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

// The default split of the trainable parameters, in the order given: "decay" holds those with
// Parameter::decays(), "no_decay" the others with a weight decay of 0. Frozen parameters are left
// out, empty groups too. Throws InvalidArgument where a parameter comes twice.
std::vector<ParameterGroup> make_parameter_groups(std::span<autograd::Parameter* const> parameters,
                                                  const HyperParameters& hyper);

// What a client's own groups must satisfy: no parameter in two groups or twice in one, none that is
// frozen, no empty name, no name twice. Throws InvalidArgument with the parameter's name.
void check_parameter_groups(std::span<const ParameterGroup> groups);

}  // namespace zinc::optim
