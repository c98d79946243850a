// optim/factory.h: makes an optimizer from a configuration.
#pragma once

#include <memory>

#include "optim/optimizer_config.h"

namespace zinc::optim {

// `seed`: for moments with stochastic rounding. Throws InvalidArgument where the configuration
// contradicts itself (nesterov without momentum, a beta outside [0, 1), a negative lr, eps or
// decay).
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, uint64_t seed = 0);

}  // namespace zinc::optim
