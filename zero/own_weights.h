// zero/own_weights.h: the part of a model's weights that a rank writes to files.
//
// A rank's part of a parameter is what lies in its shard of the parameter's segment, also on stages
// that keep weights whole: so files are written by all ranks alike, each its own bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/context.h"
#include "zero/shard_group.h"
#include "zero/weight_store.h"

namespace zinc::zero {

// See Engine::read_own_weights. Pieces go through one staging buffer of 4 MiB (f64 models: 8) at
// most.
void read_own_weights(
    const std::vector<ShardGroup>& groups, WeightStore& weights,
    const comm::Communicator& communicator, Context& context,
    const std::function<void(const std::string& name, int64_t begin, ConstView values)>& take);

}  // namespace zinc::zero
