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

template <UpdateRule kRule, class Model>
void update(const ElementUpdate& args, Model* model_weights) {
  const StepScalars<double> scalars = step_scalars<double>(args);
  const PlainScalars k{scalars.values};
  const auto num = static_cast<size_t>(num_states(kRule));
  double* weights = args.weights.data_as<double>();
  const double* gradient = args.gradient.data_as<double>();
  parallel_for(args.weights.numel(), kElementGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      F64 s[kMaxUpdateStates] = {0.0, 0.0, 0.0, 0.0};
      for (size_t j = 0; j < num; ++j) s[j] = args.states[j].template data_as<double>()[i];
      F64 w = weights[i];
      UpdateRow<kRule>::step(w, F64(gradient[i] * scalars.factor), s, k);
      for (size_t j = 0; j < num; ++j) args.states[j].template data_as<double>()[i] = s[j].value;
      weights[i] = w.value;
      if (model_weights != nullptr) {
        model_weights[i] = Model(static_cast<AccumulatorOf<Model>>(w.value));
      }
    }
  });
}

template <UpdateRule kRule>
void update(const ElementUpdate& args) {
  if (!args.model_weights) return update<kRule>(args, static_cast<double*>(nullptr));
  dispatch_float(args.model_weights.dtype(),
                 [&]<class Model>() { update<kRule>(args, args.model_weights.data_as<Model>()); });
}

}  // namespace

void element_update(const ElementUpdate& args) {
  if (args.skip && *args.skip.data_as<int32_t>() != 0) return;
  if (args.weights.dtype() != DType::f64) return element_update_lanes(args);
  switch (args.rule) {
#define ZINC_ROW(name, ...) \
  case UpdateRule::name:    \
    return update<UpdateRule::name>(args);
    ZINC_UPDATE_RULES(ZINC_ROW)
#undef ZINC_ROW
  }
}

}  // namespace zinc::kernels::cpu
