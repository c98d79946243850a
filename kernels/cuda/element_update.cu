// Element-wise update rules in one pass: every thread updates four elements at a time, 16 bytes of
// the states and 8 of 16-bit arrays, so that neighbouring threads touch neighbouring bytes of all.
// The rule is a value, not a template argument: it is the same for all threads, and memory sets the
// pace. Traffic of AdamW with bf16 gradient and model weights: weights, m and v in and out, 2 + 2
// bytes besides: 28 bytes an element, 20 with states in bf16.
// A direction takes the place of the model's weights; then there are no others.
#include "kernels/element_update.h"

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/number.h"
#include "kernels/stochastic_rounding.h"

namespace zinc::kernels::cuda {
namespace {

#include "kernels/update_rows-inl.h"

struct Scalars {
  float values[kMaxUpdateScalars];
  uint32_t counter_low, counter_high;
};

template <class Gradient, class Rounded, class State>
struct Operands {
  UpdateRule rule;
  int num_states;
  int num_scalars;
  const float* weights;  // may be null: 0
  bf16* narrow_weights;  // in place of `weights`; may be null
  bool is_direction;     // weights do not change
  float* updated;        // `weights`; null: none, or they do not change
  const Gradient* gradient;
  State* states[kMaxUpdateStates];
  Rounded* rounded;         // the model's weights, or the direction; may be null
  const float* factor;      // may be null: 1
  const int32_t* skip;      // may be null: 0
  const float* values;      // may be null: the kernel's argument
  const uint32_t* counter;  // behind `values`
  uint64_t random_key;      // with states in bf16
  int64_t first_element;
  ElementPlaces places;
};

struct RowScalars {
  const float* values;
  __device__ __forceinline__ Number<float> operator[](int i) const {
    return Number<float>(values[i]);
  }
  __device__ __forceinline__ bool has(int i) const { return values[i] != 0.0f; }
};

__device__ __forceinline__ void step_of(UpdateRule rule, Number<float>& w, Number<float> g,
                                        Number<float>* s, const RowScalars& k) {
  switch (rule) {
#define ZINC_ROW(name, ...) \
  case UpdateRule::name:    \
    return UpdateRow<UpdateRule::name>::step(w, g, s, k);
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  }
}

// The random words of the places from `element` on.
template <int kCount>
__device__ __forceinline__ void random_words(const RandomKey& key, uint64_t element,
                                             uint32_t (&words)[kCount]) {
  static_assert(kCount <= 4);
  const auto skipped = static_cast<int>(element & 3);
  const PhiloxBlock block = philox4x32(element >> 2, key.counter_high, key.key);
  PhiloxBlock next = block;
  if (skipped != 0) next = philox4x32((element >> 2) + 1, key.counter_high, key.key);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int place = skipped + i;
    words[i] = place < 4 ? block.word[place] : next.word[place - 4];
  }
}

// The random words of kCount elements from `element` on.
template <int kCount>
__device__ __forceinline__ void words_of_elements(const ElementPlaces& places, const RandomKey& key,
                                                  int64_t element, uint32_t (&words)[kCount]) {
  const int64_t place = places.place(element);
  if (places.place(element + kCount - 1) == place + kCount - 1) {
    return random_words(key, static_cast<uint64_t>(place), words);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    words[i] = key.bits(static_cast<uint64_t>(places.place(element + i)));
  }
}

template <int kCount, class Aligned, class Gradient, class Rounded, class State>
__global__ void __launch_bounds__(kMapThreads)
    element_update_kernel(Operands<Gradient, Rounded, State> at, int64_t n, Scalars scalars,
                          Aligned aligned) {
  using N = Number<float>;
  if (at.skip != nullptr && *at.skip != 0) return;
  if (at.values != nullptr) {
    for (int i = 0; i < at.num_scalars; ++i) scalars.values[i] = at.values[i];
    scalars.counter_low = at.counter[0];
    scalars.counter_high = at.counter[1];
  }
  const RowScalars k{scalars.values};
  const RandomKey key{at.random_key, uint64_t{scalars.counter_high} << 32 | scalars.counter_low};
  const float factor = at.factor != nullptr ? *at.factor : 1.0f;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x * kCount;
  for (int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount; first < n;
       first += stride) {
    float w[kCount] = {}, g[kCount], s[kMaxUpdateStates][kCount] = {};
    if (at.weights != nullptr) load_floats(at.weights, first, n, aligned, w);
    if (at.narrow_weights != nullptr) load_floats(at.narrow_weights, first, n, aligned, w);
    load_floats(at.gradient, first, n, aligned, g);
#pragma unroll
    for (int j = 0; j < kMaxUpdateStates; ++j) {
      if (j < at.num_states) load_floats(at.states[j], first, n, aligned, s[j]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      N weight(w[i]);
      N state[kMaxUpdateStates] = {N(s[0][i]), N(s[1][i]), N(s[2][i]), N(s[3][i])};
      step_of(at.rule, weight, N(g[i] * factor), state, k);
      w[i] = weight.value;
#pragma unroll
      for (int j = 0; j < kMaxUpdateStates; ++j) s[j][i] = state[j].value;
    }
    if constexpr (!std::is_same_v<State, float>) {
      uint32_t words[kCount];
      words_of_elements(at.places, key, at.first_element + first, words);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        s[0][i] = round_by_chance(s[0][i], words[i]);
        s[1][i] = round_by_chance(s[1][i], words[i] >> 16);
      }
    }
#pragma unroll
    for (int j = 0; j < kMaxUpdateStates; ++j) {
      if (j < at.num_states) store_floats(at.states[j], first, n, aligned, s[j]);
    }
    if (at.narrow_weights != nullptr && !at.is_direction) {
      uint32_t words[kCount];
      words_of_elements(at.places, random_of_weights(key), at.first_element + first, words);
#pragma unroll
      for (int i = 0; i < kCount; ++i) w[i] = round_by_chance(w[i], words[i]);
      store_floats(at.narrow_weights, first, n, aligned, w);
    }
    if (at.updated != nullptr) store_floats(at.updated, first, n, aligned, w);
    if (at.rounded != nullptr) store_floats(at.rounded, first, n, aligned, w);
  }
}

template <class Gradient, class Rounded, class State>
void run(const ElementUpdate& args, const View& rounded, const Scalars& scalars, bool aligned,
         StreamRef stream) {
  constexpr int kCount = kPack<float>;
  const bool is_wide = args.weights && args.weights.dtype() == DType::f32;
  Operands<Gradient, Rounded, State> operands{
      .rule = args.rule,
      .num_states = num_states(args.rule),
      .num_scalars = num_scalars(args.rule),
      .weights = is_wide ? args.weights.data_as<float>() : nullptr,
      .narrow_weights = args.weights && !is_wide ? args.weights.data_as<bf16>() : nullptr,
      .is_direction = makes_direction(args.rule),
      .updated = is_wide && !makes_direction(args.rule) ? args.weights.data_as<float>() : nullptr,
      .gradient = args.gradient.data_as<Gradient>(),
      .states = {},
      .rounded = rounded ? rounded.data_as<Rounded>() : nullptr,
      .factor = args.factor ? args.factor.data_as<float>() : nullptr,
      .skip = args.skip ? args.skip.data_as<int32_t>() : nullptr,
      .values = args.values ? args.values.data_as<float>() : nullptr,
      .counter = nullptr,
      .random_key = args.random.key,
      .first_element = args.first_element,
      .places = args.places};
  if (operands.values != nullptr) {
    operands.counter = reinterpret_cast<const uint32_t*>(operands.values + operands.num_scalars);
  }
  for (int j = 0; j < operands.num_states; ++j) {
    operands.states[j] = args.states[static_cast<size_t>(j)].template data_as<State>();
  }
  const int64_t n = args.gradient.numel();
  const int64_t blocks = std::min(kMaxMapBlocks, packs_of(packs_of(n, kCount), kMapThreads));
  dispatch_whole_packs(n, kCount, aligned, [&]<class Aligned>(Aligned fits) {
    launch(element_update_kernel<kCount, Aligned, Gradient, Rounded, State>,
           dim3(static_cast<unsigned>(blocks)), dim3(kMapThreads), 0, stream, operands, n, scalars,
           fits);
  });
}

}  // namespace

void element_update(const ElementUpdate& args, StreamRef stream) {
  const char* const op = name_of(args.rule).data();
  require(args.gradient.dtype() != DType::f64, op,
          ": CUDA kernels take f32 weights, not f64; compute in f64 on the CPU");
  const uint64_t counter = args.random.counter_high;
  Scalars scalars{.values = {},
                  .counter_low = static_cast<uint32_t>(counter),
                  .counter_high = static_cast<uint32_t>(counter >> 32)};
  const UpdateScalars in_f64 = update_scalars(args.rule, args.constants, args.step);
  for (size_t i = 0; i < in_f64.size(); ++i) scalars.values[i] = static_cast<float>(in_f64[i]);
  const View& rounded = makes_direction(args.rule) ? args.direction : args.model_weights;
  bool aligned = true;
  for (const ConstView& view : {ConstView(args.weights), args.gradient, ConstView(rounded)}) {
    aligned = aligned && is_aligned_for_packs(view, 0);
  }
  for (size_t j = 0; j < static_cast<size_t>(num_states(args.rule)); ++j) {
    aligned = aligned && is_aligned_for_packs(args.states[j], 0);
  }
  const DType rounded_dtype = rounded ? rounded.dtype() : DType::f32;
  dispatch_device_float(op, args.gradient.dtype(), [&]<class Gradient>() {
    dispatch_device_float(op, rounded_dtype, [&]<class Rounded>() {
      if (args.states[0] && args.states[0].dtype() == DType::bf16) {
        run<Gradient, Rounded, bf16>(args, rounded, scalars, aligned, stream);
      } else {
        run<Gradient, Rounded, float>(args, rounded, scalars, aligned, stream);
      }
    });
  });
}

}  // namespace zinc::kernels::cuda
