#include "train/config/scheduler_keys.h"

#include "core/error.h"

namespace zinc::train {
namespace {

// A flag that the scheduler does not look at would be lost without a word.
void refuse_ignored_flags(const optim::ScheduleConfig& schedule, const Overrides& flags,
                          Findings& findings) {
  using Kind = optim::ScheduleKind;
  const auto ignored = [&](std::string_view flag, const auto& value, std::string_view why) {
    findings.problem(concat(flag, " ", value, " has no effect with scheduler.type \"",
                            optim::name_of(schedule.kind), "\": ", why));
  };
  const bool cycles = schedule.kind == Kind::one_cycle;
  const bool tests_range = schedule.kind == Kind::lr_range_test;
  if (flags.warmup_steps && (schedule.kind == Kind::step_lr || cycles || tests_range)) {
    ignored("--warmup-steps", *flags.warmup_steps, "it has no warm-up; leave the flag out");
  }
  if (!flags.lr) return;
  if (cycles) {
    ignored("--lr", *flags.lr, "set scheduler.params.cycle_min_lr and cycle_max_lr");
  } else if (tests_range) {
    ignored("--lr", *flags.lr, "set scheduler.params.lr_range_test_min_lr");
  } else if (schedule.kind == Kind::warmup_lr || schedule.kind == Kind::warmup_decay_lr) {
    const double fallback = schedule.kind == Kind::warmup_lr ? *flags.lr : optim::kWarmupDecayMaxLr;
    const double top = schedule.warmup_max_lr.value_or(fallback);
    if (top == *flags.lr) return;
    ignored("--lr", *flags.lr,
            concat("scheduler.params.warmup_max_lr is ", top, "; set it to \"auto\""));
  }
}

}  // namespace

optim::ScheduleConfig read_scheduler(const json::Value* block, const Overrides& flags, double lr,
                                     Findings& findings) {
  optim::ScheduleConfig schedule;
  Fields fields(block, "scheduler", findings);
  const std::optional<std::string> type = fields.text("type");
  Fields params(fields.block("params"), "scheduler.params", findings);
  const auto warmup = [&](std::string_view key, int64_t fallback) {
    schedule.warmup_steps = settle(params.integer(key, 0), flags.warmup_steps,
                                   concat("scheduler.params.", key), "--warmup-steps", findings)
                                .value_or(fallback);
  };
  const auto total = [&](std::string_view key) {
    schedule.total_steps = params.integer(key, 1);
    if (!schedule.total_steps) schedule.total_steps = flags.total_steps;
  };
  const auto shape = [&] {
    const auto index = params.choice("warmup_type", {"log", "linear"});
    schedule.warmup_shape =
        index.value_or(0) == 0 ? optim::WarmupShape::log : optim::WarmupShape::linear;
  };
  const std::string name = lower_case(type.value_or("constant"));
  using Kind = optim::ScheduleKind;
  if (name == "constant") {
    schedule.kind = Kind::constant;
    warmup("warmup_steps", 0);
  } else if (name == "linear" || name == "cosine") {
    schedule.kind = name == "linear" ? Kind::linear : Kind::cosine;
    warmup("warmup_steps", 0);
    total("total_steps");
    schedule.min_lr = params.number("min_lr", 0.0).value_or(0.0);
  } else if (name == "steplr") {
    schedule.kind = Kind::step_lr;
    schedule.step_size = params.integer("step_size", 1).value_or(1000);
    schedule.gamma = params.number("gamma", 0.0).value_or(0.1);
  } else if (name == "warmuplr" || name == "warmupdecaylr") {
    schedule.kind = name == "warmuplr" ? Kind::warmup_lr : Kind::warmup_decay_lr;
    warmup("warmup_num_steps", 1000);
    shape();
    schedule.warmup_min_lr = params.number("warmup_min_lr", 0.0).value_or(0.0);
    schedule.warmup_max_lr = params.number("warmup_max_lr", 0.0);
    if (!schedule.warmup_max_lr && params.is_auto("warmup_max_lr")) {
      schedule.warmup_max_lr = lr;
    }
    if (schedule.kind == Kind::warmup_decay_lr) total("total_num_steps");
  } else if (name == "warmupcosinelr") {
    schedule.kind = Kind::warmup_cosine_lr;
    warmup("warmup_num_steps", 1000);
    shape();
    total("total_num_steps");
    schedule.warmup_min_ratio = params.number("warmup_min_ratio", 0.0, 1.0).value_or(0.0);
    schedule.cosine_min_ratio = params.number("cos_min_ratio", 0.0, 1.0).value_or(1e-4);
  } else if (name == "onecycle") {
    schedule.kind = Kind::one_cycle;
    schedule.cycle_min_lr = params.number("cycle_min_lr", 0.0).value_or(0.0);
    schedule.cycle_max_lr = params.number("cycle_max_lr", 0.0).value_or(0.001);
    schedule.decay_lr_rate = params.number("decay_lr_rate", 0.0).value_or(0.0);
    schedule.cycle_first_step_size = params.integer("cycle_first_step_size", 1).value_or(2000);
    schedule.cycle_second_step_size = params.integer("cycle_second_step_size", 1);
    schedule.cycle_first_stair_count = params.integer("cycle_first_stair_count", 0).value_or(0);
    schedule.cycle_second_stair_count = params.integer("cycle_second_stair_count", 0);
    schedule.decay_step_size = params.integer("decay_step_size", 0).value_or(0);
    schedule.cycle_momentum = params.boolean("cycle_momentum").value_or(true);
    schedule.cycle_min_mom = params.number("cycle_min_mom", 0.0, 1.0).value_or(0.8);
    schedule.cycle_max_mom = params.number("cycle_max_mom", 0.0, 1.0).value_or(0.9);
    schedule.decay_mom_rate = params.number("decay_mom_rate", 0.0).value_or(0.0);
  } else if (name == "lrrangetest") {
    schedule.kind = Kind::lr_range_test;
    schedule.range_test_min_lr = params.number("lr_range_test_min_lr", 0.0).value_or(1e-3);
    schedule.range_test_step_size = params.integer("lr_range_test_step_size", 1).value_or(2000);
    schedule.range_test_step_rate = params.number("lr_range_test_step_rate", 0.0).value_or(1.0);
    schedule.range_test_staircase = params.boolean("lr_range_test_staircase").value_or(false);
  } else {
    findings.problem(*fields.find("type"),
                     concat("scheduler.type \"", *type,
                            "\" is not known; there are constant, linear, cosine, StepLR, "
                            "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle and LRRangeTest"));
  }
  static_cast<void>(params.find("last_batch_iteration"));
  params.finish();
  fields.finish();
  refuse_ignored_flags(schedule, flags, findings);
  return schedule;
}

}  // namespace zinc::train
