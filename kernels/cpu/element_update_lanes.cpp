// The f32 path of element_update: weights and states in f32 or bf16, gradients and model weights in
// any short dtype. A rule works on blocks that fit the first-level cache; gradients are
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
#include "kernels/stochastic_rounding.h"

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

// `gradient`, `weights`, `result` (weights, or directions): of the block. words: of its elements,
// for states in bf16.
template <UpdateRule kRule, class State>
void update_block(const ElementUpdate& args, const StepScalars<float>& scalars, int64_t begin,
                  int64_t n, const float* gradient, const uint32_t* words, const float* weights,
                  float* result) {
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
                             const float*, const uint32_t*, const float*, float*);

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
  const bool has_narrow_weights = args.weights && args.weights.dtype() == DType::bf16;
  const auto widened = [&](const ConstView& values, int64_t begin, int64_t n,
                           float* room) HWY_ATTR {
    if (!values) return static_cast<const float*>(nullptr);
    if (values.dtype() == DType::f32) return values.data_as<float>() + begin;
    dispatch_short_float(values.dtype(), [&]<class Narrow>() HWY_ATTR {
      const Narrow* narrow = values.data_as<Narrow>() + begin;
      for_each_vector(
          n, [&](int64_t i, auto load, auto store) HWY_ATTR { store(load(narrow + i), room + i); });
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
  const auto round_weights = [&](int64_t begin, int64_t n, const float* from,
                                 uint32_t* room) HWY_ATTR {
    const hn::Rebind<uint32_t, Lanes> du;
    const int64_t place = args.places.place(args.first_element + begin);
    const uint32_t* words = random_words(random_of_weights(random), place, n, room);
    bf16* to = args.weights.data_as<bf16>() + begin;
    bf16* copy = args.model_weights ? args.model_weights.data_as<bf16>() + begin : nullptr;
    for_each_vector(n, [&](int64_t i, auto load, auto store) HWY_ATTR {
      const auto half = hn::And(hn::LoadU(du, words + i), hn::Set(du, 0xffffu));
      const LaneVec rounded_lanes = round_lanes_by_chance(load(from + i), half);
      store(rounded_lanes, to + i);
      if (copy != nullptr) store(rounded_lanes, copy + i);
    });
  };
  const bool passes_once =
      !is_narrow && !has_narrow_weights && args.gradient.dtype() == DType::f32 && !rounded;
  const int64_t grain = past_caches_grain(kElementGrain, past);
  parallel_for(args.gradient.numel(), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    if (passes_once) {
      return update(args, scalars, begin, end - begin, args.gradient.data_as<float>() + begin,
                    nullptr, widened(args.weights, begin, end - begin, nullptr), wide + begin);
    }
    HWY_ALIGN float gradients[kRandomRun];
    HWY_ALIGN float weights[kRandomRun];
    HWY_ALIGN float results[kRandomRun];
    HWY_ALIGN uint32_t room[kRandomRoom];
    for (int64_t i = begin, n = 0; i < end; i += n) {
      n = std::min(kRandomRun, end - i);
      const uint32_t* words = nullptr;
      const int64_t element = args.first_element + i;
      if (is_narrow || has_narrow_weights) n = args.places.run(element, n);
      if (is_narrow) words = random_words(random, args.places.place(element), n, room);
      float* result = wide != nullptr ? wide + i : results;
      update(args, scalars, i, n, widened(args.gradient, i, n, gradients), words,
             widened(args.weights, i, n, weights), result);
      if (has_narrow_weights && !is_direction) {
        round_weights(i, n, result, room);
      } else if (rounded) {
        round(i, n, result);
      }
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
