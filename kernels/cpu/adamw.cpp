#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {
namespace {

// The scalars of Note [Bits of AdamW].
template <class A>
struct Scalars {
  A factor, b1, c1, b2, c2, a, s, eps, decay, l2;
};

template <class A>
Scalars<A> scalars_of(const AdamW& args) {
  const auto step = static_cast<double>(args.step);
  const double correction1 = 1.0 - std::pow(args.beta1, step);
  const double correction2 = 1.0 - std::pow(args.beta2, step);
  const bool decoupled = args.mode == WeightDecay::decoupled;
  return {.factor = args.factor ? A(*args.factor.data_as<float>()) : A(1),
          .b1 = static_cast<A>(args.beta1),
          .c1 = static_cast<A>(1.0 - args.beta1),
          .b2 = static_cast<A>(args.beta2),
          .c2 = static_cast<A>(1.0 - args.beta2),
          .a = static_cast<A>(args.lr / correction1),
          .s = static_cast<A>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<A>(args.eps),
          .decay = static_cast<A>(decoupled ? args.lr * args.weight_decay : 0.0),
          .l2 = static_cast<A>(decoupled ? 0.0 : args.weight_decay)};
}

template <class W, class G, class M>
void run(const AdamW& args, M* model_weights) {
  const Scalars<W> k = scalars_of<W>(args);
  W* weights = args.weights.data_as<W>();
  const G* gradient = args.gradient.data_as<G>();
  W* first = args.m.data_as<W>();
  W* second = args.v.data_as<W>();
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      W w = weights[i];
      W g = W(AccumulatorOf<G>(gradient[i])) * k.factor;
      if (k.l2 != W(0)) g = std::fma(k.l2, w, g);
      const W m = std::fma(k.b1, first[i], k.c1 * g);
      const W v = std::fma(k.b2, second[i], (k.c2 * g) * g);
      const W d = std::fma(std::sqrt(v), k.s, k.eps);
      if (k.decay != W(0)) w = std::fma(-k.decay, w, w);
      w = std::fma(-k.a, m / d, w);
      first[i] = m;
      second[i] = v;
      weights[i] = w;
      if (model_weights != nullptr) model_weights[i] = M(static_cast<AccumulatorOf<M>>(w));
    }
  });
}

}  // namespace

void adamw(const AdamW& args) {
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
