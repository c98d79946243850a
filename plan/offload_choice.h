// plan/offload_choice.h: who updates states in host memory, where the configuration leaves it
// open ("offload_step": "auto").
//
// Bits do not depend on it, time does: the host's memory under AdamW stands against the link to the
// device. So a run is planned both ways and the shorter modelled step decides; the host's where the
// two are equal, or nothing is known.
#pragma once

#include <optional>
#include <string>

#include "zero/engine_config.h"

namespace zinc::plan {

struct Plan;

struct OffloadChoice {
  zero::OffloadStep step = zero::OffloadStep::host;
  std::optional<double> host_seconds;  // of a step with the update on the host, if it was modelled
  // Seconds of a step with the update on the device, if it was modelled.
  std::optional<double> device_seconds;
  std::string why;  // words for a person, to stand behind the choice
};

// Whether the configuration leaves the choice open.
bool leaves_offload_step_open(const zero::EngineConfig& engine);

// "offload_step: device, 12.1 ms a step where the host takes 15.2 ms"
std::string describe(const OffloadChoice& choice);

}  // namespace zinc::plan
