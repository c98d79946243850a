// zero/edited_parameters.h: a client's change of parameters by hand, the same on every rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "zero/engine.h"

namespace zinc::zero {

// Engine::edit(): what it promises, with the engine's own ways to read and write a parameter.
void edit_parameters(comm::World& world, const std::vector<std::string>& names,
                     const std::function<void(Engine::EditedParameters&)>& change, int modifier,
                     const std::function<Tensor(const std::string&)>& read,
                     const std::function<void(const std::string&, const Tensor&)>& write);

}  // namespace zinc::zero
