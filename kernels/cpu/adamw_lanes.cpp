// The f32 path of adamw: master weights in f32, moments in f32 or bf16, gradients and model weights
// in any short dtype.
#include "kernels/adamw.h"

#include "kernels/cpu/adamw_scalars.h"
#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/random_words-inl.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/short_float.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

// round_by_chance() of kernels/stochastic_rounding.h; random: words below 2^16.
HWY_INLINE LaneVec round_lanes_by_chance(LaneVec x, hn::Vec<hn::Rebind<uint32_t, Lanes>> random) {
  const hn::Rebind<uint32_t, Lanes> du;
  const auto bits = hn::BitCast(du, x);
  const auto exponent = hn::Set(du, 0x7f800000u);
  const auto rounded = hn::And(hn::Add(bits, random), hn::Set(du, 0xffff0000u));
  const auto is_special = hn::Eq(hn::And(bits, exponent), exponent);
  return hn::BitCast(Lanes(), hn::IfThenElse(is_special, bits, rounded));
}

template <class G, class Model, class Moment>
void update(const AdamW& args, Model* model_weights) {
  const Lanes d;
  const hn::Rebind<uint32_t, Lanes> du;
  const AdamWScalars<float> k = adamw_scalars<float>(args);
  const RandomKey random = adamw_random(args);
  float* weights = args.weights.data_as<float>();
  const G* gradient = args.gradient.data_as<G>();
  Moment* first = args.m.data_as<Moment>();
  Moment* second = args.v.data_as<Moment>();
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
  // words: of the elements from `begin` on, for moments in bf16.
  const auto update_run = [&](int64_t begin, int64_t n, const uint32_t* words) HWY_ATTR {
    for_each_vector(n, [&](int64_t offset, auto load, auto store) HWY_ATTR {
      const int64_t i = begin + offset;
      auto w = load(static_cast<const float*>(weights + i));
      auto g = hn::Mul(load(gradient + i), factor);
      if (k.l2 != 0.0f) g = fma_lanes(l2, w, g);
      auto m = fma_lanes(b1, load(static_cast<const Moment*>(first + i)), hn::Mul(c1, g));
      auto v =
          fma_lanes(b2, load(static_cast<const Moment*>(second + i)), hn::Mul(hn::Mul(c2, g), g));
      const auto denominator = fma_lanes(hn::Sqrt(v), s, eps);
      if (k.decay != 0.0f) w = fma_lanes(minus_decay, w, w);
      w = fma_lanes(minus_a, hn::Div(m, denominator), w);
      if constexpr (!std::is_same_v<Moment, float>) {
        const auto word = hn::LoadU(du, words + offset);
        m = round_lanes_by_chance(m, hn::And(word, hn::Set(du, 0xffffu)));
        v = round_lanes_by_chance(v, hn::ShiftRight<16>(word));
      }
      store(m, first + i);
      store(v, second + i);
      store(w, weights + i);
      if (model_weights != nullptr) store(w, model_weights + i);
    });
  };
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) HWY_ATTR {
    if constexpr (std::is_same_v<Moment, float>) {
      update_run(begin, end - begin, nullptr);
    } else {
      HWY_ALIGN uint32_t room[kRandomRoom];
      for (int64_t i = begin, n = 0; i < end; i += n) {
        const int64_t element = args.first_element + i;
        n = args.places.run(element, std::min(kRandomRun, end - i));
        update_run(i, n, random_words(random, args.places.place(element), n, room));
      }
    }
  });
}

template <class G, class Moment>
void update(const AdamW& args) {
  if (!args.model_weights) return update<G, float, Moment>(args, nullptr);
  dispatch_short_float(args.model_weights.dtype(), [&]<class Model>() {
    update<G, Model, Moment>(args, args.model_weights.data_as<Model>());
  });
}

void adamw_vectors(const AdamW& args) {
  dispatch_short_float(args.gradient.dtype(), [&]<class G>() {
    if (args.m.dtype() == DType::bf16) return update<G, bf16>(args);
    update<G, float>(args);
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
