// Rows of the learning rate's schedule. The formulas: optim/schedule.h.
#include <algorithm>
#include <array>

#include "optim/schedule.h"
#include "train/config/row.h"

namespace zinc::train {
namespace {

using optim::ScheduleConfig;
using optim::ScheduleKind;
using optim::WarmupShape;
using zero::EngineConfig;

constexpr std::array kScheduleKinds{
    ScheduleKind::constant,         ScheduleKind::linear,    ScheduleKind::cosine,
    ScheduleKind::step_lr,          ScheduleKind::warmup_lr, ScheduleKind::warmup_decay_lr,
    ScheduleKind::warmup_cosine_lr, ScheduleKind::one_cycle, ScheduleKind::lr_range_test};

Setting schedule_type() {
  Setting setting{.type = KeyType::name};
  for (const ScheduleKind kind : kScheduleKinds) setting.choices.emplace_back(name_of(kind));
  setting.get = [](const Config& config, int64_t) {
    return files::json::Value(name_of(config.engine.schedule.kind));
  };
  setting.set = [names = setting.choices](Config& config, const files::json::Value& value) {
    config.engine.schedule.kind = kScheduleKinds.at(index_of_name(names, value.as_string()));
  };
  return setting;
}

template <class T>
Setting in_schedule(T ScheduleConfig::*member) {
  return at(&Config::engine, &EngineConfig::schedule, member);
}

// Parameters of some kinds of schedules; with another they are unknown.
Rows of(std::vector<ScheduleKind> kinds, Rows rows) {
  std::string words;
  for (const ScheduleKind kind : kinds) words += str(words.empty() ? "" : ", ", name_of(kind));
  const auto is_one = [kinds = std::move(kinds)](const Config& config) {
    return std::ranges::find(kinds, config.engine.schedule.kind) != kinds.end();
  };
  for (Row& row : rows) row.unknown_without = true;
  return only(words, is_one, std::move(rows));
}

// `kind`: one of the kinds that have the key; their defaults are equal.
Row warmup_row(std::string_view name, ScheduleKind kind) {
  return works(name, in_schedule(&ScheduleConfig::warmup_steps), at_least(0), "steps",
               "length of the rise at the start")
      .with_flag("--warmup-steps", &Overrides::warmup_steps)
      .shown_as([kind](const Config& config, int64_t) -> files::json::Value {
        return config.engine.schedule.warmup_steps.value_or(optim::default_warmup_steps(kind));
      });
}

Row total_row(std::string_view name) {
  return works(name, in_schedule(&ScheduleConfig::total_steps), at_least(1), "steps",
               "length of the whole schedule")
      .with_fallback("--steps", &Overrides::total_steps);
}

Rows zinc_schedule_rows() {
  using Kind = ScheduleKind;
  using S = ScheduleConfig;
  return {
      of({Kind::constant, Kind::linear, Kind::cosine}, warmup_row("warmup_steps", Kind::constant)),
      of({Kind::linear, Kind::cosine},
         {total_row("total_steps"), works("min_lr", in_schedule(&S::min_lr), at_least(0),
                                          "learning rate at the end of the fall")}),
      of({Kind::step_lr},
         {works("step_size", in_schedule(&S::step_size), at_least(1), "steps",
                "from one drop to the next"),
          works("gamma", in_schedule(&S::gamma), at_least(0), "factor of a drop")}),
  };
}

Rows warmup_rows() {
  using Kind = ScheduleKind;
  using S = ScheduleConfig;
  const auto lr = [](const Config& config, const Overrides&) {
    return files::json::Value(config.engine.optimizer.hyper.lr);
  };
  const auto shape = one_of({WarmupShape::log, WarmupShape::linear}, &Config::engine,
                            &EngineConfig::schedule, &S::warmup_shape);
  return {
      of({Kind::warmup_lr, Kind::warmup_decay_lr, Kind::warmup_cosine_lr},
         {warmup_row("warmup_num_steps", Kind::warmup_lr)
              .when_auto("0, as transformers has it",
                         [](const Config&, const Overrides&) { return files::json::Value(0); }),
          works("warmup_type", shape, "shape of the rise")}),
      of({Kind::warmup_lr, Kind::warmup_decay_lr},
         {works("warmup_min_lr", in_schedule(&S::warmup_min_lr), at_least(0),
                "learning rate at the start of the rise"),
          works("warmup_max_lr", in_schedule(&S::warmup_max_lr), at_least(0),
                "learning rate at the end of the rise")
              .by_default_as("WarmupLR: the optimizer's lr; WarmupDecayLR: 0.001")
              .when_auto("the optimizer's lr", lr)}),
      of({Kind::warmup_decay_lr, Kind::warmup_cosine_lr}, total_row("total_num_steps")),
      of({Kind::warmup_cosine_lr},
         {works("warmup_min_ratio", in_schedule(&S::warmup_min_ratio), between(0, 1),
                "share of the lr at the start of the rise"),
          works("cos_min_ratio", in_schedule(&S::cosine_min_ratio), between(0, 1),
                "share of the lr at the end of the fall")}),
  };
}

Rows one_cycle_rows() {
  using S = ScheduleConfig;
  return {
      works("cycle_min_lr", in_schedule(&S::cycle_min_lr), at_least(0),
            "learning rate at both ends of the cycle"),
      works("cycle_max_lr", in_schedule(&S::cycle_max_lr), at_least(0),
            "learning rate in the middle of the cycle"),
      works("decay_lr_rate", in_schedule(&S::decay_lr_rate), at_least(0),
            "fall of the learning rate after the cycle, per decay_step_size"),
      works("cycle_first_step_size", in_schedule(&S::cycle_first_step_size), at_least(1), "steps",
            "length of the rise"),
      works("cycle_second_step_size", in_schedule(&S::cycle_second_step_size), at_least(1), "steps",
            "length of the fall")
          .by_default_as("as the first"),
      works("cycle_first_stair_count", in_schedule(&S::cycle_first_stair_count), at_least(0),
            "stairs", "in the rise; 0: smooth"),
      works("cycle_second_stair_count", in_schedule(&S::cycle_second_stair_count), at_least(0),
            "stairs", "in the fall; 0: smooth")
          .by_default_as("as the first"),
      works("decay_step_size", in_schedule(&S::decay_step_size), at_least(0), "steps",
            "length of one decay after the cycle; 0: none"),
      works("cycle_momentum", in_schedule(&S::cycle_momentum),
            "beta1 of Adam and AdamW moves against the learning rate"),
      works("cycle_min_mom", in_schedule(&S::cycle_min_mom), between(0, 1), "beta1 in the middle"),
      works("cycle_max_mom", in_schedule(&S::cycle_max_mom), between(0, 1), "beta1 at both ends"),
      works("decay_mom_rate", in_schedule(&S::decay_mom_rate), at_least(0),
            "rise of beta1 after the cycle, per decay_step_size"),
  };
}

Rows range_test_rows() {
  using S = ScheduleConfig;
  return {
      works("lr_range_test_min_lr", in_schedule(&S::range_test_min_lr), at_least(0),
            "learning rate at the start"),
      works("lr_range_test_step_size", in_schedule(&S::range_test_step_size), at_least(1), "steps",
            "length of one rise"),
      works("lr_range_test_step_rate", in_schedule(&S::range_test_step_rate), at_least(0),
            "height of one rise, in multiples of the start"),
      works("lr_range_test_staircase", in_schedule(&S::range_test_staircase),
            "true: rises in stairs"),
  };
}

}  // namespace

Rows scheduler_rows() {
  const Rows params{
      zinc_schedule_rows(),
      warmup_rows(),
      of({ScheduleKind::one_cycle}, one_cycle_rows()),
      of({ScheduleKind::lr_range_test}, range_test_rows()),
      no_effect("last_batch_iteration", KeyType::integer,
                "a checkpoint says where a schedule goes on"),
  };
  return block("scheduler", "absent: a constant learning rate",
               {works("type", schedule_type(), "in upper or lower case"),
                block("params", "formulas: optim/schedule.h", params)});
}

}  // namespace zinc::train
