// zero/run/lockstep.h: names the rank that uses shard groups in another order than the others,
// before the ranks hang.
//
// Where parameters are sharded, the first use of a group is a collective. In a step the program
// keeps the ranks together. A dynamic model and a prediction have no program: a rank that skips a
// group would leave the others waiting, or pair its next gather with another group's.
#pragma once

#include <memory>
#include <vector>

#include "comm/world.h"
#include "zero/layout/shard_group.h"

namespace zinc::zero {

// For passes without a program. A call that compares blocks the host until all ranks are there.
class Lockstep {
 public:
  Lockstep(const ShardGroups& groups, comm::World& world) : groups_(groups), world_(world) {}

  // A pass begins. The pass before may have been given up.
  void begin() { last_ = kEnd; }
  // A group is used. Compares it among the ranks, unless it is the group that was used last. Throws
  // the same InvalidArgument on every rank if one of them uses another group.
  void use(int group);
  // The end of a pass.
  void end() { use(kEnd); }

 private:
  static constexpr int kEnd = -1;

  const ShardGroups& groups_;
  comm::World& world_;
  int last_ = kEnd;
};

// Null if not `needed`, or in a world of one rank.
std::unique_ptr<Lockstep> make_lockstep(bool needed, const ShardGroups& groups, comm::World& world);

}  // namespace zinc::zero
