// The f32 path of adamw: master weights in f32, gradients and model weights in any short dtype.
#include "kernels/adamw.h"

#include "kernels/cpu/adamw_scalars.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

template <class G, class Model>
void update(const AdamW& args, Model* model_weights) {
  const Lanes d;
  const AdamWScalars<float> k = adamw_scalars<float>(args);
  float* weights = args.weights.data_as<float>();
  const G* gradient = args.gradient.data_as<G>();
  float* first = args.m.data_as<float>();
  float* second = args.v.data_as<float>();
  const auto factor = hn::Set(d, k.factor);
  const auto b1 = hn::Set(d, k.b1);
  const auto c1 = hn::Set(d, k.c1);
  const auto b2 = hn::Set(d, k.b2);
  const auto c2 = hn::Set(d, k.c2);
  const auto minus_a = hn::Set(d, -k.a);
  const auto s = hn::Set(d, k.s);
  const auto eps = hn::Set(d, k.eps);
  const auto minus_decay = hn::Set(d, -k.decay);
  const auto l2 = hn::Set(d, k.l2);
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    for_each_vector(end - begin, [&](int64_t offset, auto load, auto store) HWY_ATTR {
      const int64_t i = begin + offset;
      auto w = load(static_cast<const float*>(weights + i));
      auto g = hn::Mul(load(gradient + i), factor);
      if (k.l2 != 0.0f) g = fma_lanes(l2, w, g);
      const auto m = fma_lanes(b1, load(static_cast<const float*>(first + i)), hn::Mul(c1, g));
      const auto v =
          fma_lanes(b2, load(static_cast<const float*>(second + i)), hn::Mul(hn::Mul(c2, g), g));
      const auto denominator = fma_lanes(hn::Sqrt(v), s, eps);
      if (k.decay != 0.0f) w = fma_lanes(minus_decay, w, w);
      w = fma_lanes(minus_a, hn::Div(m, denominator), w);
      store(m, first + i);
      store(v, second + i);
      store(w, weights + i);
      if (model_weights != nullptr) store(w, model_weights + i);
    });
  });
}

void adamw_vectors(const AdamW& args) {
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

HWY_EXPORT(adamw_vectors);

void adamw_lanes(const AdamW& args) { HWY_DYNAMIC_DISPATCH(adamw_vectors)(args); }

}  // namespace zinc::kernels::cpu
#endif
