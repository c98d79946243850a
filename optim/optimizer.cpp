#include "optim/optimizer.h"

#include <string>

#include "core/error.h"

namespace zinc::optim {

States Optimizer::states() const {
  States states{.count = num_states(),
                .in_whole = whole_rule() != nullptr ? whole_rule()->num_states() : 0,
                .beside_f32 = state_dtype(),
                .weights = weights_dtype()};
  states.apart = evaluates_apart();
  for (int i = 0; i < states.count; ++i) {
    states.blocks[static_cast<size_t>(i)] = state_blocks(i);
    states.are_weights[static_cast<size_t>(i)] = state_is_weight(i);
  }
  return states;
}

std::vector<std::string_view> Optimizer::state_names() const {
  std::vector<std::string_view> names;
  for (int i = 0; i < num_states(); ++i) names.push_back(state_name(i));
  const WholeRule* const whole = whole_rule();
  if (whole == nullptr) return names;
  for (int i = 0; i < whole->num_states(); ++i) names.push_back(whole->state_name(i));
  for (int i = 0; i < whole->num_vectors(); ++i) names.push_back(whole->vector_name(i));
  return names;
}

int Optimizer::state_index(std::string_view state) const {
  std::string known;
  const std::vector<std::string_view> names = state_names();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == state) return static_cast<int>(i);
    known += str(" ", names[i]);
  }
  throw InvalidArgument(str("optimizer ", name(), " has no state called '", state, "'; it has",
                            known.empty() ? " none" : known));
}

}  // namespace zinc::optim
