// optim/one_bit_options.h: the constants of rules that send signs.
#pragma once

#include <cstdint>

namespace zinc::optim {

struct OneBitOptions {
  // Updates 1 to this number are Adam's, with gradients that are summed whole; > 0. DeepSpeed's
  // advice: 15 to 25 % of a run.
  int64_t freeze_step = 100'000;
  // One scale for each parameter, as DeepSpeed has it; false: one for every 1024 elements.
  bool parameter_scales = false;
};

}  // namespace zinc::optim
