#include "kernels/element_update.h"

#include <array>
#include <cstddef>

#include "kernels/cpu/f64_number.h"
#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/update_scalars.h"

namespace zinc::kernels::cpu {

void element_update_lanes(const ElementUpdate& args);

namespace {

#undef ZINC_ELEMENT
#define ZINC_ELEMENT inline
#include "kernels/update_rows-inl.h"

struct PlainScalars {
  std::array<double, kMaxUpdateScalars> values;
  F64 operator[](int i) const { return values[static_cast<size_t>(i)]; }
  bool has(int i) const { return values[static_cast<size_t>(i)] != 0.0; }
};

// rounded: the model's weights, or the direction; may be null.
template <UpdateRule kRule, class Rounded>
void update(const ElementUpdate& args, Rounded* rounded) {
  constexpr bool kHasWeights = reads_weights(kRule);
  const StepScalars<double> scalars = step_scalars<double>(args);
  const PlainScalars k{scalars.values};
  const auto num = static_cast<size_t>(num_states(kRule));
  double* weights = kHasWeights ? args.weights.data_as<double>() : nullptr;
  const double* gradient = args.gradient.data_as<double>();
  parallel_for(args.gradient.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      F64 s[kMaxUpdateStates] = {0.0, 0.0, 0.0, 0.0};
      for (size_t j = 0; j < num; ++j) s[j] = args.states[j].template data_as<double>()[i];
      F64 w = kHasWeights ? weights[i] : 0.0;
      UpdateRow<kRule>::step(w, F64(gradient[i] * scalars.factor), s, k);
      for (size_t j = 0; j < num; ++j) args.states[j].template data_as<double>()[i] = s[j].value;
      if constexpr (!makes_direction(kRule)) weights[i] = w.value;
      if (rounded != nullptr) rounded[i] = Rounded(static_cast<AccumulatorOf<Rounded>>(w.value));
    }
  });
}

template <UpdateRule kRule>
void update(const ElementUpdate& args) {
  const View& rounded = makes_direction(kRule) ? args.direction : args.model_weights;
  if (!rounded) return update<kRule>(args, static_cast<double*>(nullptr));
  dispatch_float(rounded.dtype(),
                 [&]<class Rounded>() { update<kRule>(args, rounded.data_as<Rounded>()); });
}

}  // namespace

void element_update(const ElementUpdate& args) {
  if (args.skip && *args.skip.data_as<int32_t>() != 0) return;
  if (args.gradient.dtype() != DType::f64) return element_update_lanes(args);
  switch (args.rule) {
#define ZINC_ROW(name, ...) \
  case UpdateRule::name:    \
    return update<UpdateRule::name>(args);
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  }
}

}  // namespace zinc::kernels::cpu
