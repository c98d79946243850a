#include "zero/use_forecast.h"

namespace zinc::zero {

void UseForecast::begin(WeightStore::Phase phase) {
  uses_.clear();
  numel_.assign(1, 0);
  next_ = 0;
  if (schedule_ == nullptr) return;
  if (phase == WeightStore::Phase::evaluation) append(schedule_->evaluation());
  if (phase == WeightStore::Phase::forward) append(schedule_->forward());
  if (phase != WeightStore::Phase::evaluation) append(schedule_->backward());
  run_end_.assign(uses_.size(), uses_.size());
  for (size_t i = uses_.size(); i-- > 1;) {
    run_end_[i - 1] = uses_[i - 1] == uses_[i] ? run_end_[i] : i;
  }
}

void UseForecast::append(const std::vector<ScheduleEntry>& entries) {
  for (const ScheduleEntry& entry : entries) {
    if (entry.action != ScheduleAction::acquire) continue;
    const ShardGroup& group = groups_[static_cast<size_t>(entry.parameter.group)];
    const Placement& placement = group.placements()[static_cast<size_t>(entry.parameter.position)];
    uses_.push_back(entry.parameter.group);
    const bool stays = is_persistent(placement.segment);
    numel_.push_back(numel_.back() + (stays ? 0 : placement.parameter->numel()));
  }
}

void UseForecast::advance(int group) {
  if (next_ < uses_.size() && uses_[next_] == group) ++next_;
}

int64_t UseForecast::distance(int group) const {
  for (size_t i = next_; i < uses_.size(); i = run_end_[i]) {
    if (uses_[i] == group) return numel_[i] - numel_[next_];
  }
  return kNever;
}

std::vector<int> UseForecast::upcoming() const {
  std::vector<int> order;
  std::vector<bool> seen(groups_.size(), false);
  for (size_t i = next_; i < uses_.size() && order.size() < groups_.size(); i = run_end_[i]) {
    const auto group = static_cast<size_t>(uses_[i]);
    if (!seen[group]) order.push_back(uses_[i]);
    seen[group] = true;
  }
  return order;
}

}  // namespace zinc::zero
