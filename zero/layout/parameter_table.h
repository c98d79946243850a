// zero/layout/parameter_table.h: finds the group and the position of a parameter.
#pragma once

#include <unordered_map>
#include <vector>

#include "autograd/parameter.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

struct ParameterIndex {
  int group = 0;
  int position = 0;  // in ShardGroup::placements()
  friend bool operator==(const ParameterIndex&, const ParameterIndex&) = default;
};

class ParameterTable {
 public:
  explicit ParameterTable(const std::vector<ShardGroup>& groups);
  // Throws InvalidArgument for a parameter that was not in the model when the engine was made.
  ParameterIndex at(const autograd::Parameter& parameter) const;

 private:
  std::unordered_map<const autograd::Parameter*, ParameterIndex> places_;
};

}  // namespace zinc::zero
