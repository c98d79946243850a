// optim/lamb_options.h: the constants of optim/lamb.h.
#pragma once

namespace zinc::optim {

// The bounds of the trust ratio |w| / |d|, as in DeepSpeed's Lamb.
struct LambOptions {
  double least_ratio = 0.01;  // "min_coeff"
  double most_ratio = 10.0;   // "max_coeff"
};

}  // namespace zinc::optim
