// zero/use_forecast.h: which groups the passes under way will use next, read off the schedule.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "zero/shard_group.h"
#include "zero/step_schedule.h"
#include "zero/weight_store.h"

namespace zinc::zero {

// A position in the recorded uses of the present passes: of forward and the backward that follows,
// of a forward alone, or of a backward.
class UseForecast {
 public:
  // No use is known in advance where `schedule` is null.
  UseForecast(const std::vector<ShardGroup>& groups, const StepSchedule* schedule)
      : groups_(groups), schedule_(schedule) {}

  void begin(WeightStore::Phase phase);
  // The next use, which is of `group`, happens now.
  void advance(int group);

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // Elements that are gathered for use before `group` is used again; kNever: not in these passes.
  int64_t distance(int group) const;
  // Other groups in the order of their next use, the nearest first; each once.
  std::vector<int> upcoming() const;

 private:
  void append(const std::vector<ScheduleEntry>& entries);

  const std::vector<ShardGroup>& groups_;
  const StepSchedule* schedule_;
  std::vector<int> uses_;        // groups, in order
  std::vector<int64_t> numel_;   // of the parameters used before each use, and after the last
  std::vector<size_t> run_end_;  // by use: where the uses of its group in a row end
  size_t next_ = 0;
};

}  // namespace zinc::zero
