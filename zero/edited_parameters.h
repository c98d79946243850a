// zero/edited_parameters.h: lets a client change parameters by hand, with the same result on every
// rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "zero/engine.h"

namespace zinc::zero {

// The implementation of Engine::edit(). `read` and `write`: how the engine reads and writes a
// parameter. Collective. Throws InvalidArgument.
void edit_parameters(comm::World& world, const std::vector<std::string>& names,
                     const std::function<void(Engine::EditedParameters&)>& change, int modifier,
                     const std::function<Tensor(const std::string&)>& read,
                     const std::function<void(const std::string&, const Tensor&)>& write);

}  // namespace zinc::zero
