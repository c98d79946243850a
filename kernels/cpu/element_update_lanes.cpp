// The f32 path of element_update: master weights in f32, states in f32 or bf16, gradients and model
// weights in any short dtype. A rule works on blocks that fit the first-level cache; gradients are
// widened before it, and model weights rounded behind it, so that a rule is compiled once for each
// dtype of states.
#include "kernels/element_update.h"

#include "kernels/cpu/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/element_update_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/lane_number-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/past_caches.h"
#include "kernels/cpu/random_words-inl.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/short_float.h"
#include "kernels/cpu/update_scalars.h"

HWY_BEFORE_NAMESPACE();
namespace zinc::kernels::cpu {
namespace HWY_NAMESPACE {

#undef ZINC_ELEMENT
#define ZINC_ELEMENT HWY_INLINE
#include "kernels/update_rows-inl.h"

struct LaneScalars {
  const std::array<float, kMaxUpdateScalars>& values;
  HWY_INLINE LaneNumber operator[](int i) const {
    return LaneNumber(constant(values[static_cast<size_t>(i)]));
  }
  HWY_INLINE bool has(int i) const { return values[static_cast<size_t>(i)] != 0.0f; }
};

// `gradient`, `result` (weights, or directions): of the block. words: of its elements, for states
// in bf16.
template <UpdateRule kRule, class State>
void update_block(const ElementUpdate& args, const StepScalars<float>& scalars, int64_t begin,
                  int64_t n, const float* gradient, const uint32_t* words, float* result) {
  constexpr int kStates[] = {
#define ZINC_ROW(name, states, ...) states,
      ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  };
  constexpr int kNum = kStates[static_cast<int>(kRule)];
  const hn::Rebind<uint32_t, Lanes> du;
  const std::array<float, kMaxUpdateScalars> values = scalars.values;  // no store changes them
  const LaneScalars k{values};
  const LaneVec factor = constant(scalars.factor);
  const float* const weights =
      reads_weights(kRule) ? args.weights.data_as<float>() + begin : nullptr;
  State* states[kNum + 1];
  for (int j = 0; j < kNum; ++j) {
    states[j] = args.states[static_cast<size_t>(j)].template data_as<State>() + begin;
  }
  for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
    const LaneNumber zero(0.0);
    LaneNumber w = zero;
    if constexpr (reads_weights(kRule)) w.lanes = load(weights + i);
    LaneNumber s[4] = {zero, zero, zero, zero};
    for (int j = 0; j < kNum; ++j) s[j].lanes = load(static_cast<const State*>(states[j] + i));
    UpdateRow<kRule>::step(w, LaneNumber(hn::Mul(load(gradient + i), factor)), s, k);
    for (int j = 0; j < kNum; ++j) {
      if constexpr (!std::is_same_v<State, float>) {
        const auto word = hn::LoadU(du, words + i);
        const auto half = j == 0 ? hn::And(word, hn::Set(du, 0xffffu)) : hn::ShiftRight<16>(word);
        s[j].lanes = round_lanes_by_chance(s[j].lanes, half);
      }
      store(s[j].lanes, states[j] + i);
    }
    store(w.lanes, result + i);
  });
}

using UpdateBlock = void (*)(const ElementUpdate&, const StepScalars<float>&, int64_t, int64_t,
                             const float*, const uint32_t*, float*);

template <UpdateRule kRule>
UpdateBlock block_of_rule(bool narrow) {
  return narrow ? &update_block<kRule, bf16> : &update_block<kRule, float>;
}

UpdateBlock block_of(UpdateRule rule, bool narrow) {
  switch (rule) {
#define ZINC_ROW(name, ...) \
  case UpdateRule::name:    \
    return block_of_rule<UpdateRule::name>(narrow);
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  }
  return nullptr;
}

void element_update_vectors(const ElementUpdate& args) {
  const StepScalars<float> scalars = step_scalars<float>(args);
  const RandomKey random = step_random(args);
  const bool is_narrow = args.states[0] && args.states[0].dtype() == DType::bf16;
  const UpdateBlock update = block_of(args.rule, is_narrow);
  const auto widened = [&](int64_t begin, int64_t n, float* room) HWY_ATTR {
    if (args.gradient.dtype() == DType::f32) return args.gradient.data_as<float>() + begin;
    dispatch_short_float(args.gradient.dtype(), [&]<class G>() HWY_ATTR {
      const G* gradient = args.gradient.data_as<G>() + begin;
      for_each_vector(n, [&](int64_t i, auto load, auto store)
                             HWY_ATTR { store(load(gradient + i), room + i); });
    });
    return static_cast<const float*>(room);
  };
  // The result in f32, where it has memory of its own, and that to which it is rounded.
  const bool is_direction = makes_direction(args.rule);
  const View& whole = is_direction ? args.direction : args.weights;
  const bool past = is_direction && past_caches(whole.bytes());
  float* wide = whole.dtype() == DType::f32 && !past ? whole.data_as<float>() : nullptr;
  const View rounded = !is_direction ? args.model_weights : wide == nullptr ? whole : View();
  const auto round = [&](int64_t begin, int64_t n, const float* from) HWY_ATTR {
    dispatch_short_float(rounded.dtype(), [&]<class Rounded>() HWY_ATTR {
      Rounded* to = rounded.data_as<Rounded>() + begin;
      for_each_vector(
          n, [&](int64_t i, auto load, auto store) HWY_ATTR { store(load(from + i), to + i); },
          past);
    });
  };
  const bool passes_once = !is_narrow && args.gradient.dtype() == DType::f32 && !rounded;
  const int64_t grain = past_caches_grain(kElementGrain, past);
  parallel_for(args.gradient.numel(), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    if (passes_once) {
      return update(args, scalars, begin, end - begin, args.gradient.data_as<float>() + begin,
                    nullptr, wide + begin);
    }
    HWY_ALIGN float gradients[kRandomRun];
    HWY_ALIGN float results[kRandomRun];
    HWY_ALIGN uint32_t room[kRandomRoom];
    for (int64_t i = begin, n = 0; i < end; i += n) {
      n = std::min(kRandomRun, end - i);
      const uint32_t* words = nullptr;
      if (is_narrow) {
        const int64_t element = args.first_element + i;
        n = args.places.run(element, n);
        words = random_words(random, args.places.place(element), n, room);
      }
      float* result = wide != nullptr ? wide + i : results;
      update(args, scalars, i, n, widened(i, n, gradients), words, result);
      if (rounded) round(i, n, result);
    }
    if (past) hwy::FlushStream();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zinc::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zinc::kernels::cpu {

HWY_EXPORT(element_update_vectors);

void element_update_lanes(const ElementUpdate& args) {
  HWY_DYNAMIC_DISPATCH(element_update_vectors)(args);
}

}  // namespace zinc::kernels::cpu
#endif
