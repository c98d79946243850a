// zero/values/values_at_end.h: what a model's parameters hold when their engine is gone.
//
//   stages 0 to 2  the model takes over the memory of the whole weights; nothing is copied
//   stage 3        Engine::release_to_model() gathers the weights: collective, room for all of them
//
// A parameter whose values are gone throws when it is used, with its name and the reason.
#pragma once

#include <functional>
#include <string>

#include "nn/module.h"
#include "tensor/tensor.h"
#include "zero/strategy.h"

namespace zinc::zero {

// Call when the engine ends. The parameters get the resident source of values back.
// `between_updates`: the weights are not part way through an update. An update beside the next
// forward pass is ended first, which is collective; not if an exception ends the engine.
void leave_values(nn::Module& model, Strategy& strategy, bool between_updates) noexcept;

// Gives the parameters their whole values, by `read`, one after the other, and takes them from the
// engine. Collective if `read` is. If `read` throws, nothing has changed.
void release_values(nn::Module& model, const std::function<Tensor(const std::string&)>& read);

}  // namespace zinc::zero
