#include "plan/offload_choice.h"

#include <fmt/format.h>

namespace zinc::plan {

bool leaves_offload_step_open(const zero::EngineConfig& engine) {
  return engine.offload_step == zero::OffloadStep::automatic &&
         engine.zero.offload_optimizer.device == zero::OffloadDevice::cpu;
}

std::string describe(const OffloadChoice& choice) {
  return fmt::format("offload_step: {}, {}", zero::name_of(choice.step), choice.why);
}

}  // namespace zinc::plan
