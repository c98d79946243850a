#include "zero/resident_values.h"

#include "core/context.h"
#include "core/error.h"
#include "core/transfer.h"
#include "kernels/copy.h"

namespace zinc::zero {

ResidentValues::ResidentValues(nn::Module& model, const nn::WeightSource* source, uint64_t seed)
    : source_(source), initializer_(seed) {
  std::vector<std::string> missing;
  for (nn::Parameter* parameter : model.parameters()) {
    if (source != nullptr && !source->contains(*parameter)) missing.push_back(parameter->name());
    if (!parameter->has_data()) continue;
    resident_[parameter->name()] = parameter->data();
    parameter->drop_data();
  }
  if (!missing.empty()) {
    throw DataError(concat("weights: ", to_string(nn::LoadResult{.missing = missing})));
  }
}

void ResidentValues::read(const autograd::Parameter& parameter, int64_t begin, View out) const {
  if (source_ != nullptr) {
    source_->read(parameter, begin, out);
    return;
  }
  const auto found = resident_.find(parameter.name());
  if (found == resident_.end()) {
    initializer_.read(parameter, begin, out);
    return;
  }
  const View values = found->second.view().reshape(Shape{parameter.numel()});
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
