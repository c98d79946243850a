// The f32 path of sgd: master weights in f32, gradients and model weights in any short dtype.
#include "kernels/sgd.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sgd_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class G, class Model>
void update(const Sgd& args, Model* model_weights) {
  const Lanes d;
  float* weights = args.weights.data_as<float>();
  const G* gradient = args.gradient.data_as<G>();
  const bool has_momentum = args.momentum != 0.0;
  const bool decays = args.weight_decay != 0.0;
  float* velocity = has_momentum ? args.velocity.data_as<float>() : nullptr;
  const auto factor = hn::Set(d, args.factor ? *args.factor.data_as<float>() : 1.0f);
  const auto decay = hn::Set(d, static_cast<float>(args.weight_decay));
  const auto momentum = hn::Set(d, static_cast<float>(args.momentum));
  const auto share = hn::Set(d, static_cast<float>(1.0 - args.dampening));
  const auto minus_lr = hn::Set(d, -static_cast<float>(args.lr));
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for_each_vector(end - begin, [&](int64_t offset, auto load, auto store) HWY_ATTR {
      const int64_t i = begin + offset;
      const auto w = load(static_cast<const float*>(weights + i));
      auto g = hn::Mul(load(gradient + i), factor);
      if (decays) g = fma_lanes(decay, w, g);
      auto direction = g;
      if (has_momentum) {
        auto u = g;
        if (!args.first_step) {
          u = fma_lanes(momentum, load(static_cast<const float*>(velocity + i)), hn::Mul(share, g));
        }
        store(u, velocity + i);
        direction = args.nesterov ? fma_lanes(momentum, u, g) : u;
      }
      const auto result = fma_lanes(minus_lr, direction, w);
      store(result, weights + i);
      if (model_weights != nullptr) store(result, model_weights + i);
    });
  });
}

void sgd_vectors(const Sgd& args) {
  dispatch_short_float(args.gradient.dtype(), [&]<class G>() {
    if (!args.model_weights) return update<G>(args, static_cast<float*>(nullptr));
    dispatch_short_float(args.model_weights.dtype(), [&]<class Model>() {
      update<G>(args, args.model_weights.data_as<Model>());
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(sgd_vectors);

void sgd_lanes(const Sgd& args) { HWY_DYNAMIC_DISPATCH(sgd_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
