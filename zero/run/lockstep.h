// zero/run/lockstep.h: ranks that use shard groups in different orders are told so before they
// hang.
//
// Where parameters are sharded, the first use of a group is a collective. The step program keeps the
// ranks together; a dynamic model and a prediction have none, and a rank that skips a group would
// leave the others waiting for it, or pair its next gather with theirs.
#pragma once

#include <memory>
#include <vector>

#include "comm/world.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// Every call that compares blocks the host until all ranks are there: for passes without a program.
class Lockstep {
 public:
  Lockstep(const std::vector<ShardGroup>& groups, comm::World& world)
      : groups_(groups), world_(world) {}

  // A pass begins, also after one that was given up.
  void begin() { last_ = kEnd; }
  // A use of a group; compared where it is not the group that was used last. Throws InvalidArgument
  // on every rank, in the same words, where one of them is elsewhere.
  void use(int group);
  // The end of a pass.
  void end() { use(kEnd); }

 private:
  static constexpr int kEnd = -1;

  const std::vector<ShardGroup>& groups_;
  comm::World& world_;
  int last_ = kEnd;
};

// Null unless ranks need it to stay together.
std::unique_ptr<Lockstep> make_lockstep(bool needed, const std::vector<ShardGroup>& groups,
                                        comm::World& world);

}  // namespace zinc::zero
