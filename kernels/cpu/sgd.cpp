#include "kernels/sgd.h"

#include <cmath>

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void sgd_lanes(const Sgd& args);

namespace {

template <class Model>
void update(const Sgd& args, Model* model_weights) {
  double* weights = args.weights.data_as<double>();
  const double* gradient = args.gradient.data_as<double>();
  const bool has_momentum = args.momentum != 0.0;
  double* velocity = has_momentum ? args.velocity.data_as<double>() : nullptr;
  const double factor = args.factor ? double{*args.factor.data_as<float>()} : 1.0;
  const double share = 1.0 - args.dampening;
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double g = gradient[i] * factor;
      if (args.weight_decay != 0.0) g = std::fma(args.weight_decay, weights[i], g);
      double direction = g;
      if (has_momentum) {
        const double u = args.first_step ? g : std::fma(args.momentum, velocity[i], share * g);
        velocity[i] = u;
        direction = args.nesterov ? std::fma(args.momentum, u, g) : u;
      }
      weights[i] = std::fma(-args.lr, direction, weights[i]);
      if (model_weights != nullptr) {
        model_weights[i] = Model(static_cast<AccumulatorOf<Model>>(weights[i]));
      }
    }
  });
}

}  // namespace

void sgd(const Sgd& args) {
  if (args.skip && *args.skip.data_as<int32_t>() != 0) return;
  if (args.weights.dtype() != DType::f64) return sgd_lanes(args);
  if (!args.model_weights) return update(args, static_cast<double*>(nullptr));
  dispatch_float(args.model_weights.dtype(),
                 [&]<class Model>() { update(args, args.model_weights.data_as<Model>()); });
}

}  // namespace zinc::kernels::cpu
