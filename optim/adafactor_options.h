// optim/adafactor_options.h: the constants of optim/adafactor.h.
#pragma once

namespace zinc::optim {

struct AdafactorOptions {
  double least_square = 1e-30;  // "eps"[0]: added to every squared gradient
  double least_scale = 1e-3;    // "eps"[1]: the scale of a parameter is at least this
  double clip_threshold = 1.0;  // of the root mean square of a direction
  double decay_rate = -0.8;     // below 0: second moments decay by 1 - step^decay_rate
  bool scale_parameter = true;  // the learning rate is relative to the parameter's scale
  bool relative_step = false;   // the learning rate is multiplied by min(1e-2, 1 / sqrt(step))
  bool warmup_init = false;     // with relative_step: by min(1e-6 step, 1 / sqrt(step))
};

}  // namespace zinc::optim
