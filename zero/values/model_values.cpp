#include "zero/values/model_values.h"

#include <exception>
#include <utility>
#include <vector>

#include "autograd/resident_source.h"
#include "core/context.h"
#include "core/error.h"
#include "core/transfer.h"
#include "kernels/copy.h"

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
bool finish_late(const Stores& stores) {
  if (!stores.update->is_pending()) return true;
  if (std::uncaught_exceptions() > 0) return false;  // other ranks may not make the same call
  try {
    stores.update->finish();
  } catch (...) {  // a use of the parameters reports it
    return false;
  }
  return true;
}

}  // namespace

ResidentValues::ResidentValues(nn::Module& model, const nn::WeightSource* source, uint64_t seed)
    : source_(source), initializer_(seed) {
  if (source != nullptr) require_fit(*source, model);
  for (nn::Parameter* parameter : model.parameters()) {
    require(!parameter->slice() || !parameter->has_data(), "parameter '", parameter->name(),
            "': the model holds a slice of it, as another engine left it; give first values "
            "(EngineOptions::weights), or make the model anew");
    const bool lost = !parameter->loss_of_data().empty();
    // Without another source of values, data() throws and names the loss.
    if (parameter->has_data() || (lost && source == nullptr)) {
      held_[parameter->name()] = {parameter, parameter->data(), {}};
    } else if (lost) {
      held_[parameter->name()] = {parameter, {}, parameter->loss_of_data()};
    }
  }
  for (auto& [name, held] : held_) held.parameter->drop_data();
}

ResidentValues::~ResidentValues() {
  for (auto& [name, held] : held_) {
    held.parameter->reset_source();
    held.parameter->drop_data();
    if (!held.values.defined()) {
      held.parameter->lose_data(held.loss);
      continue;
    }
    held.parameter->set_dtype(held.values.dtype());
    held.parameter->adopt_data(held.values);
  }
}

void ResidentValues::drop_resident() { held_.clear(); }

void ResidentValues::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  if (source_ != nullptr) {
    source_->read(parameter, begin, out);
    return;
  }
  const auto found = held_.find(parameter.name());
  if (found == held_.end()) {
    initializer_.read(parameter, begin, out);
    return;
  }
  const View values = found->second.values.view().reshape(Shape{found->second.values.numel()});
  Context& context = Context::current();
  const View part = values.narrow(0, begin, out.numel());
  if (part.device().is_cuda()) {
    const Tensor converted = Tensor::empty(out.shape(), out.dtype(), Label::staging);
    kernels::copy({.x = part, .y = converted.view()}, context.compute());
    return download(converted.view(), out.data(), context.compute());
  }
  kernels::copy({.x = part, .y = out}, context.compute());
  context.compute()->synchronize();
}

void leave_values(nn::Module& model, Stores& stores, bool between_updates) noexcept {
  const bool complete = between_updates && finish_late(stores);
  std::vector<std::pair<autograd::Parameter*, Tensor>> whole;
  if (complete) whole = stores.weights->hand_over();
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
