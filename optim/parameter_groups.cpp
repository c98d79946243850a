#include "optim/parameter_groups.h"

#include <unordered_set>
#include <utility>

#include "core/error.h"

namespace zinc::optim {

std::vector<ParameterGroup> make_parameter_groups(std::span<autograd::Parameter* const> parameters,
                                                  const HyperParameters& hyper) {
  ParameterGroup decay{.name = "decay", .parameters = {}, .hyper = hyper};
  ParameterGroup no_decay{.name = "no_decay", .parameters = {}, .hyper = hyper};
  no_decay.hyper.weight_decay = 0.0;
  for (autograd::Parameter* parameter : parameters) {
    require(parameter != nullptr, "parameter groups: a parameter is null");
    if (!parameter->requires_grad()) continue;
    (parameter->decays() ? decay : no_decay).parameters.push_back(parameter);
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&decay, &no_decay}) {
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  }
  check_parameter_groups(groups);
  return groups;
}

std::vector<ParameterGroup> make_parameter_groups(
    std::span<autograd::Parameter* const> parameters, const HyperParameters& hyper,
    const std::set<const autograd::Parameter*>& matrices, const HyperParameters& matrix_hyper) {
  std::vector<autograd::Parameter*> whole, others;
  for (autograd::Parameter* parameter : parameters) {
    (matrices.contains(parameter) ? whole : others).push_back(parameter);
  }
  std::vector<ParameterGroup> groups = make_parameter_groups(others, hyper);
  for (ParameterGroup& group : make_parameter_groups(whole, matrix_hyper)) {
    group.name = group.name == "decay" ? "matrices" : "matrices_no_decay";
    groups.push_back(std::move(group));
  }
  return groups;
}

void check_parameter_groups(std::span<const ParameterGroup> groups) {
  std::unordered_set<std::string_view> names;
  std::unordered_set<const autograd::Parameter*> seen;
  for (const ParameterGroup& group : groups) {
    require(!group.name.empty() && names.insert(group.name).second,
            "parameter groups: every group needs a name of its own, got \"", group.name, "\"");
    for (const autograd::Parameter* parameter : group.parameters) {
      require(parameter != nullptr, "parameter groups: a parameter of \"", group.name,
              "\" is null");
      require(parameter->requires_grad(), "parameter groups: ", parameter->name(),
              " is frozen and has no place in \"", group.name, "\"");
      require(seen.insert(parameter).second, "parameter groups: ", parameter->name(),
              " comes twice, again in \"", group.name, "\"");
    }
  }
}

}  // namespace zinc::optim
