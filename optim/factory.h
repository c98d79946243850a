// optim/factory.h: from a configuration to an optimizer.
#pragma once

#include <memory>

#include "optim/optimizer_config.h"

namespace zinc::optim {

// `seed`: of the stochastic rounding of moments. Throws InvalidArgument where the configuration
// contradicts itself (nesterov without momentum, a beta outside [0, 1), a negative lr, eps or
// decay).
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, uint64_t seed = 0);

}  // namespace zinc::optim
