// A run's use of a schedule; tests/parity compares the formulas with DeepSpeed's.
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace zinc::optim {
namespace schedule_test {

const OptimizerConfig kAdamW{.kind = OptimizerKind::adamw, .hyper = {.lr = 1e-3}};

Schedule linear(int64_t total) {
  return {{.kind = ScheduleKind::linear, .total_steps = total}, kAdamW};
}

TEST(Schedule, SkippedUpdatesDoNotCount) {
  Schedule schedule = linear(10);
  EXPECT_EQ(schedule.lr(), 1e-3);
  EXPECT_EQ(schedule.lr(), 1e-3);  // no advance() in between
  schedule.advance();
  EXPECT_EQ(schedule.lr(), schedule.lr_at(1));
  EXPECT_LT(schedule.lr(), 1e-3);
}

TEST(Schedule, ARateSetByHandHoldsUntilItIsCleared) {
  Schedule schedule = linear(10);
  schedule.set_lr(0.5);
  schedule.advance();
  schedule.advance();
  EXPECT_EQ(schedule.lr(), 0.5);
  HyperParameters hyper;
  schedule.apply(hyper, 0.1);
  EXPECT_EQ(hyper.lr, 0.5 * 0.1);
  schedule.set_lr({});
  EXPECT_EQ(schedule.lr(), schedule.lr_at(2));  // the schedule went on meanwhile
  EXPECT_THROW(schedule.set_lr(-1.0), InvalidArgument);
  EXPECT_THROW(schedule.set_lr(std::nan("")), InvalidArgument);
}

TEST(Schedule, StateGoesOnWhereItWasTaken) {
  Schedule first = linear(10);
  for (int i = 0; i < 4; ++i) first.advance();
  first.set_lr(0.25);
  Schedule second = linear(10);
  second.set_state(first.state());
  EXPECT_EQ(second.lr(), 0.25);
  second.set_lr({});
  EXPECT_EQ(second.lr(), second.lr_at(4));
  EXPECT_THROW(second.set_state({.updates = -1}), InvalidArgument);
}

TEST(Schedule, ATotalThatTheConfigurationLeavesOut_IsTheRunsLength) {
  const Schedule schedule({.kind = ScheduleKind::linear}, kAdamW, 20);
  EXPECT_EQ(schedule.lr_at(10), 0.5e-3);
  EXPECT_EQ(schedule.lr_at(20), 0.0);
  EXPECT_THROW(Schedule({.kind = ScheduleKind::linear}, kAdamW), InvalidArgument);
}

TEST(Schedule, OneCycleMovesTheMomentumOfAdamOnly) {
  const ScheduleConfig config{.kind = ScheduleKind::one_cycle, .cycle_first_step_size = 10};
  HyperParameters hyper{.momentum = 0.5, .beta1 = 0.7, .beta2 = 0.8};
  Schedule(config, kAdamW).apply(hyper);
  EXPECT_EQ(hyper.beta1, config.cycle_min_mom);
  EXPECT_EQ(hyper.beta2, 0.99);
  hyper = {.momentum = 0.5, .beta1 = 0.7, .beta2 = 0.8};
  Schedule(config, {.kind = OptimizerKind::sgd, .hyper = {.lr = 1e-3}}).apply(hyper);
  EXPECT_EQ(hyper.beta1, 0.7);
  EXPECT_EQ(hyper.beta2, 0.8);
  EXPECT_EQ(hyper.momentum, 0.5);
}

// DeepSpeed's max(2, warmup_num_steps).
TEST(Schedule, AWarmUpOfNoSteps_IsOneOfTwo) {
  const Schedule none({.kind = ScheduleKind::warmup_lr, .warmup_steps = 0}, kAdamW, 10);
  const Schedule two({.kind = ScheduleKind::warmup_lr, .warmup_steps = 2}, kAdamW, 10);
  for (int64_t update = 0; update < 10; ++update) {
    EXPECT_EQ(none.lr_at(update), two.lr_at(update)) << update;
  }
}

TEST(Schedule, ValuesOutOfRangeAreRefused) {
  const auto refused = [](ScheduleConfig config) {
    EXPECT_THROW(Schedule(config, kAdamW, 10), InvalidArgument);
  };
  refused({.kind = ScheduleKind::warmup_lr, .warmup_steps = -1});
  refused({.kind = ScheduleKind::warmup_lr, .warmup_min_lr = -1.0});
  refused({.kind = ScheduleKind::step_lr, .step_size = 0});
  refused({.kind = ScheduleKind::one_cycle, .cycle_first_step_size = 0});
  refused({.kind = ScheduleKind::one_cycle, .decay_step_size = -1});
  refused({.kind = ScheduleKind::lr_range_test, .range_test_step_size = 0});
}

}  // namespace schedule_test
}  // namespace zinc::optim
