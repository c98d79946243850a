#include "zero/layout/parameter_table.h"

#include "core/error.h"

namespace zinc::zero {

ParameterTable::ParameterTable(const std::vector<ShardGroup>& groups) {
  for (const ShardGroup& group : groups) {
    int position = 0;
    for (const Placement& placement : group.placements()) {
      places_.emplace(placement.parameter, ParameterIndex{group.index(), position++});
    }
  }
}

ParameterIndex ParameterTable::at(const autograd::Parameter& parameter) const {
  const auto found = places_.find(&parameter);
  require(found != places_.end(), "parameter '", parameter.name(),
          "' was not part of the model when the engine was made");
  return found->second;
}

}  // namespace zinc::zero
