// The f32 path of element_update: weights and states in f32 or bf16, gradients, directions and
// model weights in any short dtype. One pass reads a gradient in f32 or bf16 and writes weights in
// f32, or a direction in f32 or bf16. All else is converted ahead of the pass or behind it, in
// blocks that fit the first-level cache, so that a rule is compiled for few dtypes.
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

// A block of elements.
struct BlockOperands {
  const void* gradient = nullptr;   // of the pass's G
  const float* weights = nullptr;   // null: the rule reads none
  const uint32_t* words = nullptr;  // random words, for states in bf16
  void* result = nullptr;           // weights, or directions: of the pass's R
  bool past = false;                // the result is stored past the caches
};

// G, R: f32 or bf16.
template <UpdateRule kRule, class State, class G, class R>
void update_block(const ElementUpdate& args, const StepScalars<float>& scalars, int64_t begin,
                  int64_t n, const BlockOperands& block) {
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
  const auto* const gradient = static_cast<const G*>(block.gradient);
  const float* const weights = block.weights;
  const uint32_t* const words = block.words;
  auto* const result = static_cast<R*>(block.result);
  State* states[kNum + 1];
  for (int j = 0; j < kNum; ++j) {
    states[j] = args.states[static_cast<size_t>(j)].template data_as<State>() + begin;
  }
  // The result of a vector, whose states change.
  const auto step = [&](int64_t i, auto load, auto store) HWY_ATTR {
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
    return w.lanes;
  };
  const auto step_by_vector = [&](int64_t from, int64_t to) HWY_ATTR {
    for_each_vector(to - from, [&](int64_t i, auto load, auto store) HWY_ATTR {
      store(step(from + i, load, store), result + from + i);
    });
  };
  const int64_t lanes = lane_count();
  int64_t i = block.past ? std::min(head_of(result), n) : 0;
  step_by_vector(0, i);
  const auto load = [](const auto* from) HWY_ATTR { return load_lanes(from); };
  const auto store = [](LaneVec value, auto* to) HWY_ATTR { store_lanes(value, to); };
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const LaneVec first = step(i, load, store);
    store_lane_pair(first, step(i + lanes, load, store), result + i, block.past);
  }
  step_by_vector(i, n);
}

using UpdateBlock = void (*)(const ElementUpdate&, const StepScalars<float>&, int64_t, int64_t,
                             const BlockOperands&);

struct BlockTypes {
  bool narrow_states, narrow_gradient, narrow_direction;
};

template <UpdateRule kRule, class State, class G>
UpdateBlock block_by_result(const BlockTypes& types) {
  if constexpr (makes_direction(kRule)) {
    if (types.narrow_direction) return &update_block<kRule, State, G, bf16>;
  }
  return &update_block<kRule, State, G, float>;
}

template <UpdateRule kRule, class State>
UpdateBlock block_by_gradient(const BlockTypes& types) {
  return types.narrow_gradient ? block_by_result<kRule, State, bf16>(types)
                               : block_by_result<kRule, State, float>(types);
}

UpdateBlock block_of(UpdateRule rule, const BlockTypes& types) {
  switch (rule) {
#define ZINC_ROW(name, ...)                                                       \
  case UpdateRule::name:                                                          \
    return types.narrow_states ? block_by_gradient<UpdateRule::name, bf16>(types) \
                               : block_by_gradient<UpdateRule::name, float>(types);
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  }
  return nullptr;
}

void element_update_vectors(const ElementUpdate& args) {
  const StepScalars<float> scalars = step_scalars<float>(args);
  const RandomKey random = step_random(args);
  const auto is_bf16 = [](const auto& view) { return view && view.dtype() == DType::bf16; };
  const bool is_narrow = is_bf16(args.states[0]);
  const bool is_direction = makes_direction(args.rule);
  const bool has_narrow_weights = is_bf16(args.weights);
  const UpdateBlock update = block_of(args.rule, {.narrow_states = is_narrow,
                                                  .narrow_gradient = is_bf16(args.gradient),
                                                  .narrow_direction = is_bf16(args.direction)});
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
  const auto gradient_of = [&](int64_t begin, int64_t n, float* room) HWY_ATTR -> const void* {
    if (is_bf16(args.gradient)) return args.gradient.data_as<bf16>() + begin;
    return widened(args.gradient, begin, n, room);
  };
  // Where the pass writes. Null: to f32 in the cache, which is rounded to `rounded`.
  const View& whole = is_direction ? args.direction : args.weights;
  const bool past = is_direction && past_caches(whole.bytes());
  const bool is_written = whole.dtype() == DType::f32 || (is_direction && is_bf16(whole));
  const auto result_of = [&](int64_t begin, float* room) -> void* {
    if (!is_written) return room;
    return static_cast<std::byte*>(whole.data()) + begin * size_of(whole.dtype());
  };
  const View rounded = !is_direction ? args.model_weights : is_written ? View() : whole;
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
  const bool passes_once = !is_narrow && !has_narrow_weights && !rounded && is_written &&
                           args.gradient.dtype() != DType::f16;
  const int64_t grain = past_caches_grain(kElementGrain, past);
  parallel_for(args.gradient.numel(), grain, [&](int64_t begin, int64_t end) HWY_ATTR {
    HWY_ALIGN float gradients[kRandomRun];
    HWY_ALIGN float weights[kRandomRun];
    HWY_ALIGN float results[kRandomRun];
    HWY_ALIGN uint32_t room[kRandomRoom];
    const int64_t most = passes_once ? end - begin : kRandomRun;
    for (int64_t i = begin, n = 0; i < end; i += n) {
      n = std::min(most, end - i);
      const int64_t element = args.first_element + i;
      if (is_narrow || has_narrow_weights) n = args.places.run(element, n);
      const BlockOperands block{
          .gradient = gradient_of(i, n, gradients),
          .weights = widened(args.weights, i, n, weights),
          .words = is_narrow ? random_words(random, args.places.place(element), n, room) : nullptr,
          .result = result_of(i, results),
          .past = past && is_written};
      update(args, scalars, i, n, block);
      const auto* const result = static_cast<const float*>(block.result);
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
