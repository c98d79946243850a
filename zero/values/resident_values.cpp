#include "zero/values/resident_values.h"

#include "core/context.h"
#include "core/error.h"
#include "core/transfer.h"
#include "kernels/copy.h"

namespace zinc::zero {

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

}  // namespace zinc::zero
