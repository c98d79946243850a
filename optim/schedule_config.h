// optim/schedule_config.h: how the learning rate moves from update to update.
//
// One struct for all kinds, so that a configuration is plain data; a member that a kind does not
// name is ignored. The formulas are in optim/schedule.h. "Updates" are applied optimizer steps:
// skipped steps do not count.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zinc::optim {

enum class ScheduleKind : uint8_t {
  constant,          // linear warm-up, then the optimizer's lr
  linear,            // linear warm-up, then linear to min_lr at total_steps
  cosine,            // linear warm-up, then a half cosine to min_lr at total_steps
  step_lr,           // torch.optim.lr_scheduler.StepLR
  warmup_lr,         // DeepSpeed's WarmupLR
  warmup_decay_lr,   // DeepSpeed's WarmupDecayLR
  warmup_cosine_lr,  // DeepSpeed's WarmupCosineLR
  one_cycle,         // DeepSpeed's OneCycle
  lr_range_test,     // DeepSpeed's LRRangeTest
};
std::string_view name_of(ScheduleKind kind);  // "WarmupLR"

// WarmupDecayLR's warmup_max_lr where the configuration has none, whatever the optimizer's lr.
inline constexpr double kWarmupDecayMaxLr = 1e-3;

enum class WarmupShape : uint8_t { log, linear };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::constant;

  // constant, linear, cosine, WarmupLR, WarmupDecayLR, WarmupCosineLR
  // Updates; DeepSpeed's warmup_num_steps. Absent: 1000 for DeepSpeed's kinds, 0 for the others.
  std::optional<int64_t> warmup_steps;
  std::optional<int64_t> total_steps;  // updates; total_num_steps; absent: the run's length
  WarmupShape warmup_shape = WarmupShape::log;
  double warmup_min_lr = 0.0;           // WarmupLR, WarmupDecayLR
  std::optional<double> warmup_max_lr;  // WarmupLR: absent is the optimizer's lr; DecayLR: 0.001
  double warmup_min_ratio = 0.0;        // WarmupCosineLR: relative to the optimizer's lr
  double cosine_min_ratio = 1e-4;       // WarmupCosineLR: cos_min_ratio
  double min_lr = 0.0;                  // linear, cosine: the lr at the end

  // StepLR
  int64_t step_size = 1000;  // updates between two drops
  double gamma = 0.1;        // factor of a drop

  // OneCycle
  double cycle_min_lr = 0.0;
  double cycle_max_lr = 0.001;
  double decay_lr_rate = 0.0;
  int64_t cycle_first_step_size = 2000;           // updates
  std::optional<int64_t> cycle_second_step_size;  // updates; absent: cycle_first_step_size
  int64_t cycle_first_stair_count = 0;
  std::optional<int64_t> cycle_second_stair_count;  // absent: cycle_first_stair_count
  int64_t decay_step_size = 0;                      // updates
  bool cycle_momentum = true;                       // beta1 moves against the lr; SGD: nothing
  double cycle_min_mom = 0.8;
  double cycle_max_mom = 0.9;
  double decay_mom_rate = 0.0;

  // LRRangeTest
  double range_test_min_lr = 1e-3;
  int64_t range_test_step_size = 2000;  // updates
  double range_test_step_rate = 1.0;
  bool range_test_staircase = false;
};

}  // namespace zinc::optim
