#include "optim/optimizer.h"

#include <string>

#include "core/error.h"

namespace zinc::optim {

int Optimizer::state_index(std::string_view state) const {
  std::string known;
  for (int i = 0; i < num_states(); ++i) {
    if (state_name(i) == state) return i;
    known += str(" ", state_name(i));
  }
  throw InvalidArgument(str("optimizer ", name(), " has no state called '", state, "'; it has",
                            known.empty() ? " none" : known));
}

}  // namespace zinc::optim
