// zero/step_schedule.h: the order in which a step touches parameters, recorded before the first
// step.
//
// Construction of an engine runs the model once, forward and backward, on a meta device, and writes
// down every acquire and every finished gradient. The list is immutable. Engine, prefetch, planner
// and trace read it; its hash is what ranks agree on before they start, because collectives are
// issued in its order. A run that leaves it is an InvalidArgument that names both sides.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/parameter.h"
#include "nn/model.h"
#include "zero/shard_group.h"

namespace zinc::zero {

// A parameter as (group, position in ShardGroup::placements()).
struct ParameterIndex {
  int group = 0;
  int position = 0;
  friend bool operator==(const ParameterIndex&, const ParameterIndex&) = default;
};

// Finds a parameter's place by its identity.
class ParameterTable {
 public:
  explicit ParameterTable(const std::vector<ShardGroup>& groups);
  ParameterIndex at(const autograd::Parameter& parameter) const;

 private:
  std::unordered_map<const autograd::Parameter*, ParameterIndex> places_;
};

enum class ScheduleAction : uint8_t { acquire, gradient_done };

struct ScheduleEntry {
  ScheduleAction action = ScheduleAction::acquire;
  ParameterIndex parameter;
  friend bool operator==(const ScheduleEntry&, const ScheduleEntry&) = default;
};

class StepSchedule {
 public:
  // Runs `model` on a meta device with batches of one short sequence, `together` of them side by
  // side (zero/vertical_passes.h). The model's parameters get their present sources back.
  static StepSchedule record(nn::Model& model, const std::vector<ShardGroup>& groups,
                             int64_t together = 1);

  const std::vector<ScheduleEntry>& forward() const { return forward_; }
  const std::vector<ScheduleEntry>& backward() const { return backward_; }
  // A forward pass of one batch.
  const std::vector<ScheduleEntry>& evaluation() const { return evaluation_; }
  // Groups in the order in which the last of their gradients is done; groups whose parameters are
  // not all used come last, by descending index. Every trained group once.
  const std::vector<int>& reduce_order() const { return reduce_order_; }
  // All `num_groups` groups: those that a forward pass uses, by their first use, then the rest.
  std::vector<int> use_order(int num_groups) const;
  // Of the entries and of the layout of all groups (names, offsets, sizes, dtypes).
  uint64_t hash() const { return hash_; }

 private:
  std::vector<ScheduleEntry> forward_;
  std::vector<ScheduleEntry> backward_;
  std::vector<ScheduleEntry> evaluation_;
  std::vector<int> reduce_order_;
  uint64_t hash_ = 0;
};

// Compares a run with one phase of the schedule, entry by entry.
class ScheduleCursor {
 public:
  ScheduleCursor(const std::vector<ShardGroup>& groups, std::string phase,
                 const std::vector<ScheduleEntry>& entries)
      : groups_(&groups), phase_(std::move(phase)), entries_(&entries) {}
  void restart() { next_ = 0; }
  void advance(ScheduleAction action, ParameterIndex parameter);
  size_t position() const { return next_; }

 private:
  const std::vector<ShardGroup>* groups_;
  std::string phase_;
  const std::vector<ScheduleEntry>* entries_;
  size_t next_ = 0;
};

}  // namespace zinc::zero
