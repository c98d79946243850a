#include "zero/run/lockstep.h"

#include <algorithm>
#include <string>

#include "comm/gather_values.h"
#include "core/error.h"

namespace zinc::zero {
namespace {

std::string name_of(const ShardGroup& group) {
  return group.name().empty() ? "the parameters of the model itself" : group.name();
}

}  // namespace

void Lockstep::use(int group) {
  if (group != kEnd && group == last_) return;
  last_ = group;
  const double mine = group;
  const std::vector<double> all = comm::gather_values(world_, {&mine, 1});
  if (std::all_of(all.begin(), all.end(), [&](double code) { return code == mine; })) return;
  std::string places;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int at = static_cast<int>(all[rank]);
    places += str(rank == 0 ? "rank " : ", rank ", rank, at == kEnd ? " ends its pass" : " uses ",
                  at == kEnd ? std::string() : name_of(groups_[static_cast<size_t>(at)]));
  }
  throw InvalidArgument(str("a shard group is skipped on some ranks: ", places,
                            ". Where parameters are sharded (stage 3), every rank has to use "
                            "the same groups in the same order"));
}

std::unique_ptr<Lockstep> make_lockstep(bool needed, const ShardGroups& groups,
                                        comm::World& world) {
  if (!needed || world.size() == 1) return nullptr;
  return std::make_unique<Lockstep>(groups, world);
}

}  // namespace zinc::zero
