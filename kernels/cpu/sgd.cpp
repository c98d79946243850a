#include "kernels/sgd.h"

#include <cmath>

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

template <class W, class G, class M>
void run(const Sgd& args, M* model_weights) {
  W* weights = args.weights.data_as<W>();
  const G* gradient = args.gradient.data_as<G>();
  const bool has_momentum = args.momentum != 0.0;
  W* velocity = has_momentum ? args.velocity.data_as<W>() : nullptr;
  const W factor = args.factor ? W(*args.factor.data_as<float>()) : W(1);
  const W weight_decay = static_cast<W>(args.weight_decay);
  const W momentum = static_cast<W>(args.momentum);
  const W share = static_cast<W>(1.0 - args.dampening);
  const W lr = static_cast<W>(args.lr);
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      W w = weights[i];
      W g = W(AccumulatorOf<G>(gradient[i])) * factor;
      if (weight_decay != W(0)) g = std::fma(weight_decay, w, g);
      W d = g;
      if (has_momentum) {
        const W u = args.first_step ? g : std::fma(momentum, velocity[i], share * g);
        velocity[i] = u;
        d = args.nesterov ? std::fma(momentum, u, g) : u;
      }
      w = std::fma(-lr, d, w);
      weights[i] = w;
      if (model_weights != nullptr) model_weights[i] = M(static_cast<AccumulatorOf<M>>(w));
    }
  });
}

}  // namespace

void sgd(const Sgd& args) {
  if (args.skip && *args.skip.data_as<int32_t>() != 0) return;
  if (args.weights.dtype() == DType::f64) {
    if (!args.model_weights) return run<double, double>(args, static_cast<float*>(nullptr));
    return dispatch_float(args.model_weights.dtype(), [&]<class M>() {
      run<double, double>(args, args.model_weights.data_as<M>());
    });
  }
  dispatch_float(args.gradient.dtype(), [&]<class G>() {
    if constexpr (!std::is_same_v<G, double>) {
      if (!args.model_weights) return run<float, G>(args, static_cast<float*>(nullptr));
      dispatch_float(args.model_weights.dtype(),
                     [&]<class M>() { run<float, G>(args, args.model_weights.data_as<M>()); });
    }
  });
}

}  // namespace zinc::kernels::cpu
