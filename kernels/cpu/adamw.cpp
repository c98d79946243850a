#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/adamw_scalars.h"
#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void adamw_lanes(const AdamW& args);

namespace {

template <class Model>
void update(const AdamW& args, Model* model_weights) {
  const AdamWScalars<double> k = adamw_scalars<double>(args);
  double* weights = args.weights.data_as<double>();
  const double* gradient = args.gradient.data_as<double>();
  double* first = args.m.data_as<double>();
  double* second = args.v.data_as<double>();
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double w = weights[i];
      double g = gradient[i] * k.factor;
      if (k.l2 != 0.0) g = std::fma(k.l2, w, g);
      const double m = std::fma(k.b1, first[i], k.c1 * g);
      const double v = std::fma(k.b2, second[i], (k.c2 * g) * g);
      const double denominator = std::fma(std::sqrt(v), k.s, k.eps);
      if (k.decay != 0.0) w = std::fma(-k.decay, w, w);
      w = std::fma(-k.a, m / denominator, w);
      first[i] = m;
      second[i] = v;
      weights[i] = w;
      if (model_weights != nullptr) {
        model_weights[i] = Model(static_cast<AccumulatorOf<Model>>(w));
      }
    }
  });
}

}  // namespace

void adamw(const AdamW& args) {
  if (args.skip && *args.skip.data_as<int32_t>() != 0) return;
  if (args.weights.dtype() != DType::f64) return adamw_lanes(args);
  if (!args.model_weights) return update(args, static_cast<double*>(nullptr));
  dispatch_float(args.model_weights.dtype(),
                 [&]<class Model>() { update(args, args.model_weights.data_as<Model>()); });
}

}  // namespace zinc::kernels::cpu
