// optim/loss_scale_config.h: how a 16-bit float loss is scaled. See optim/loss_scaler.h.
#pragma once

#include <cstdint>

namespace zinc::optim {

struct LossScaleConfig {
  bool dynamic = false;
  double static_scale = 1.0;  // > 0; used where not dynamic
  // The following members count only if `dynamic`.
  int initial_scale_power = 16;         // the first scale is 2^this
  int64_t window = 1000;                // steps without overflow after which the scale doubles, > 0
  int hysteresis = 2;                   // overflows tolerated before the scale is halved, >= 1
  bool consecutive_hysteresis = false;  // refill the tolerance at every step without overflow
  double min_scale = 1.0;               // > 0
};

}  // namespace zinc::optim
