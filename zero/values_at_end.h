// zero/values_at_end.h: what a model's parameters hold when their engine is gone.
//
// Where every rank keeps the weights whole (stages 0 to 2), the model takes over the memory they
// lie in: nothing is copied. Sharded weights (stage 3) go to the model with
// Engine::release_to_model() alone, because gathering them takes all ranks and room for all of
// them. A parameter whose values are gone says so, by name, when it is used.
#pragma once

#include <functional>
#include <string>

#include "nn/module.h"
#include "tensor/tensor.h"
#include "zero/strategy.h"

namespace zinc::zero {

// The engine ends: its parameters go back to the resident source. `between_updates`: no update is
// part way through the weights. An update beside the next forward pass is brought to its end first,
// which is collective; not where an exception ends the engine.
void leave_values(nn::Module& model, Strategy& strategy, bool between_updates) noexcept;

// Parameters with their values whole, by `read` one after the other; they leave the engine.
// Collective where `read` is. Where it throws, nothing has changed.
void release_values(nn::Module& model, const std::function<Tensor(const std::string&)>& read);

}  // namespace zinc::zero
