// Fuzz target: bytes as a DeepSpeed configuration. A file is accepted or refused with a
// ConfigError; what is accepted resolves to a file that means the same, and any JSON that parses is
// written and read again without a change.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "files/json/parser.h"
#include "files/json/writer.h"
#include "optim/factory.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "train/config/config.h"

namespace {

constexpr int64_t kWorld = 2;

void check(bool condition) {
  if (!condition) std::abort();
}

void check_json(const std::string& text) {
  zinc::files::json::Value value;
  try {
    value = zinc::files::json::parse(text, "input", zinc::files::json::ParseOptions::config());
  } catch (const zinc::DataError&) {
    return;
  }
  for (const int indent : {0, 2}) {
    const std::string written = zinc::files::json::write(value, indent);
    check(zinc::files::json::parse(written, "again") == value);
  }
}

// The effect of a configuration on a run, as numbers. Throws where the run cannot be built.
std::vector<double> meaning(const zinc::train::Config& config) {
  const zinc::zero::EngineConfig& engine = config.engine;
  const zinc::optim::HyperParameters& hyper = engine.optimizer.hyper;
  zinc::optim::make_optimizer(engine.optimizer);
  zinc::optim::LossScaler scaler(engine.precision.loss_scale);
  const zinc::optim::Schedule schedule(engine.schedule, engine.optimizer, 100);
  std::vector<double> numbers{static_cast<double>(engine.batch.micro_batch),
                              static_cast<double>(engine.batch.accumulation),
                              static_cast<double>(engine.zero.stage),
                              static_cast<double>(engine.zero.reduce_bucket_size),
                              static_cast<double>(engine.zero.prefetch_bucket_size),
                              static_cast<double>(engine.zero.max_live_parameters),
                              static_cast<double>(engine.precision.dtype),
                              static_cast<double>(engine.optimizer.kind),
                              static_cast<double>(engine.reduce_schedule()),
                              static_cast<double>(engine.communication_dtype()),
                              static_cast<double>(engine.recompute.every_blocks),
                              static_cast<double>(config.seed),
                              static_cast<double>(config.steps_per_print),
                              engine.overlap_comm() ? 1.0 : 0.0,
                              engine.precision.check_overflow ? 1.0 : 0.0,
                              engine.wall_clock_breakdown ? 1.0 : 0.0,
                              engine.gradient.clipping,
                              hyper.lr,
                              hyper.weight_decay};
  for (const int64_t update : {0, 1, 7, 50, 2000}) {
    numbers.push_back(schedule.lr_at(update));
    numbers.push_back(schedule.beta1_at(update).value_or(-1.0));
  }
  for (const bool overflow : {true, false, true}) {
    numbers.push_back(scaler.scale());
    try {
      scaler.update(overflow);
    } catch (const zinc::NumericsError&) {
      numbers.push_back(-1.0);
    }
  }
  return numbers;
}

void check_config(const std::string& text) {
  zinc::train::Config config;
  try {
    config = zinc::train::parse_config(text, "input", kWorld);
  } catch (const zinc::ConfigError&) {
    return;
  }
  const std::string resolved = zinc::train::resolved_json(config, kWorld);
  const zinc::train::Config again = zinc::train::parse_config(resolved, "resolved", kWorld);
  check(meaning(again) == meaning(config));
  check(zinc::train::resolved_json(again, kWorld) == resolved);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_json(text);
  check_config(text);
  return 0;
}
