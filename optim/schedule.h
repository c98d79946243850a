// optim/schedule.h: the learning rate of every update.
//
// n counts applied updates from 0. DeepSpeed steps its schedulers after an update and starts them
// at -1, so that update n runs with lr(k = n - 1); that is kept for its five kinds, because
// configurations in use rely on those numbers. Consequences: WarmupLR with minimum 0 runs its first
// two updates at 0, WarmupCosineLR its first. zinc's own kinds and StepLR waste no update.
//
// With W = warmup steps, T = total steps, lr0 = the optimizer's lr, all in f64:
//
//   | kind           | from   | lr                                                  |
//   |----------------|--------|-----------------------------------------------------|
//   | Constant       | n = 0  | lr0 * min(1, (n + 1) / W)                           |
//   | Linear         | n = 0  | as Constant                                         |
//   |                | n = W  | min + (lr0 - min) * (1 - p)                         |
//   | Cosine         | n = 0  | as Constant                                         |
//   |                | n = W  | min + (lr0 - min) * (1 + cos(pi p)) / 2             |
//   | StepLR         | n = 0  | lr0 * gamma^floor(n / step_size)                    |
//   | WarmupLR       | k = -1 | min                                                 |
//   |                | k = 0  | min + (max - min) * g(k)                            |
//   |                | k = W  | max                                                 |
//   | WarmupDecayLR  | k = -1 | as WarmupLR                                         |
//   |                | k = W  | min + (max - min) * max(0, (T - k) / max(1, T - W)) |
//   | WarmupCosineLR | k = -1 | 0                                                   |
//   |                | k = 0  | lr0 * (r + (1 - r) * g(k))                          |
//   |                | k = W  | lr0 * max(0, c + (1 - c) * (1 + cos(pi q)) / 2)     |
//   | OneCycle       | k = -1 | Note [OneCycle] in schedule.cpp                     |
//   | LRRangeTest    | k = -1 | min * (1 + rate * i)                                |
//
//   p = min(1, (n - W) / (T - W)); k = n - 1; q = min(1, (k - W + 1) / max(1, T - W));
//   r = warmup_min_ratio; c = cosine_min_ratio; i = (k + 1) / step_size, floored where staircase.
//   In the rows of k, W is max(2, W), and g(k) = ln(k + 1) / ln(W) (log) or k / W (linear).
//
// OneCycle moves beta1, and sets beta2 to 0.99, of Adam and AdamW where cycle_momentum is set.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "optim/optimizer_config.h"
#include "optim/schedule_config.h"

namespace zinc::optim {

std::string_view name_of(WarmupShape shape);  // "log", "linear"

// Warm-up steps if the configuration has none.
int64_t default_warmup_steps(ScheduleKind kind);

// The part of a schedule that a checkpoint keeps.
struct ScheduleState {
  int64_t updates = 0;             // applied so far
  std::optional<double> fixed_lr;  // set by hand
};

class Schedule {
 public:
  // `run_updates`: the length of the run; used if the configuration has no total. Throws
  // InvalidArgument if a kind needs a total and there is none, or a value is out of its range.
  Schedule(const ScheduleConfig& config, const OptimizerConfig& optimizer,
           std::optional<int64_t> run_updates = std::nullopt);

  // --- the formula alone
  double lr_at(int64_t update) const;
  std::optional<double> beta1_at(int64_t update) const;  // empty where the schedule leaves it alone

  // --- the schedule of a run
  double lr() const;  // for the next update
  // From the next update on, `lr` >= 0 holds. nullopt: the schedule holds again.
  void set_lr(std::optional<double> lr);
  // Writes the values of the next update to `hyper`. hyper.lr becomes lr() * group_scale: a group
  // keeps its multiple of the schedule's rate.
  void apply(HyperParameters& hyper, double group_scale = 1.0) const;
  // After an applied (not a skipped) update.
  void advance() { ++state_.updates; }

  const ScheduleState& state() const { return state_; }
  void set_state(const ScheduleState& state);

 private:
  double warmup_shape(int64_t k) const;
  double deepspeed_lr(int64_t k) const;
  int64_t cycle_length() const;
  double one_cycle_share(int64_t k) const;

  ScheduleConfig config_;
  double base_lr_;
  bool moves_momentum_;
  int64_t warmup_;
  int64_t total_;
  ScheduleState state_;
};

}  // namespace zinc::optim
