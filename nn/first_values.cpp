#include "nn/first_values.h"

#include "core/context.h"
#include "core/error.h"
#include "core/transfer.h"

namespace zinc::nn {

FirstValues::FirstValues(Module& model, const WeightSource* source, uint64_t seed)
    : source_(source), initializer_(seed) {
  if (source != nullptr) require_fit(*source, model);
  for (Parameter* parameter : model.parameters()) {
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

FirstValues::~FirstValues() {
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

void FirstValues::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  if (source_ != nullptr) return source_->read(parameter, begin, out);
  const auto found = held_.find(parameter.name());
  if (found == held_.end()) return initializer_.read(parameter, begin, out);
  const Tensor& whole = found->second.values;
  const Tensor part = whole.reshape_view(Shape{whole.numel()}).narrow_view(0, begin, out.numel());
  const StreamRef stream = Context::current().compute();
  if (whole.device().is_cuda()) {
    Tensor converted = Tensor::empty(out.shape(), out.dtype(), Label::staging);
    converted.copy_from(part);
    return download(converted.view(), out.data(), stream);
  }
  Tensor::wrap(out, nullptr).copy_from(part);
  stream->synchronize();
}

}  // namespace zinc::nn
