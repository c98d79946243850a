#include "zero/values/values_at_end.h"

#include <exception>
#include <utility>
#include <vector>

#include "autograd/resident_source.h"

namespace zinc::zero {
namespace {

constexpr const char* kSharded =
    "their engine has ended, and on stage 3, or in a pipeline, this rank did not have them whole; "
    "call engine.release_to_model() before its end, or load weights again";
constexpr const char* kSliced =
    "their engine has ended, and every rank had a slice of them; load weights again";
constexpr const char* kEncoded =
    "their engine has ended, and kept them quantized; call engine.release_to_model() before its "
    "end, or load weights again";
constexpr const char* kPartWay =
    "their engine ended part way through an update; call engine.step() and "
    "engine.finish_update() before its end, or load weights again";

// Ends an update that is under way. False if that failed.
bool finish_late(const Strategy& strategy) {
  if (!strategy.update->is_pending()) return true;
  if (std::uncaught_exceptions() > 0) return false;  // other ranks may not make the same call
  try {
    strategy.update->finish();
  } catch (...) {  // a use of the parameters reports it
    return false;
  }
  return true;
}

}  // namespace

void leave_values(nn::Module& model, Strategy& strategy, bool between_updates) noexcept {
  const bool complete = between_updates && finish_late(strategy);
  std::vector<std::pair<autograd::Parameter*, Tensor>> whole;
  if (complete) whole = strategy.weights->hand_over();
  for (nn::Parameter* parameter : model.parameters()) {
    const bool was_released = &parameter->source() == &autograd::resident_source();
    if (was_released && !parameter->slice()) continue;
    parameter->reset_source();
    parameter->lose_data(parameter->slice()                      ? kSliced
                         : !complete                             ? kPartWay
                         : parameter->block_format().has_value() ? kEncoded
                                                                 : kSharded);
  }
  for (auto& [parameter, values] : whole) {
    if (!parameter->has_data() && !parameter->slice()) parameter->adopt_data(std::move(values));
  }
}

void release_values(nn::Module& model, const std::function<Tensor(const std::string&)>& read) {
  std::vector<Tensor> values;
  for (const nn::Parameter* parameter : model.parameters()) {
    values.push_back(Tensor::empty(parameter->shape(), parameter->dtype(), Label::parameters));
    values.back().copy_from(read(parameter->name()));
  }
  size_t i = 0;
  for (nn::Parameter* parameter : model.parameters()) {
    parameter->reset_source();
    parameter->adopt_data(std::move(values[i++]));
  }
}

}  // namespace zinc::zero
