#include "autograd/weight.h"

#include <algorithm>
#include <utility>

#include "autograd/mode.h"
#include "core/error.h"
#include "kernels/copy.h"

namespace zinc::autograd {
namespace {

const std::byte* end_of(const ConstView& view) {
  return static_cast<const std::byte*>(view.data()) + view.bytes();
}

}  // namespace

JoinedValue::JoinedValue(std::vector<WeightValue> parts) : parts_(std::move(parts)) {
  view_ = parts_.front().view();
  if (parts_.size() == 1 || !view_) return;
  Shape shape = view_.shape();
  int64_t rows = 0;
  for (const WeightValue& part : parts_) rows += part.view().dim(0);
  shape.set(0, rows);
  const auto is_apart = [](const WeightValue& part, const WeightValue& next) {
    return end_of(part.view()) != next.view().data();
  };
  if (std::ranges::adjacent_find(parts_, is_apart) == parts_.end()) {
    view_ = ConstView(view_.data(), view_.dtype(), shape, view_.device());
    return;
  }
  copy_ = Tensor::empty(shape, view_.dtype(), Label::workspace);
  int64_t first = 0;
  for (const WeightValue& part : parts_) {
    const int64_t count = part.view().dim(0);
    kernels::copy({.x = part.view(), .y = copy_.view().narrow(0, first, count)}, compute_stream());
    first += count;
  }
  view_ = copy_.view();
}

WeightValue Weight::acquire() const {
  if (parameter_ != nullptr) return WeightValue(parameter_->source().acquire(*parameter_));
  return tensor_.defined() ? WeightValue(tensor_) : WeightValue();
}

std::string to_string(const Weight& weight) {
  const std::string shape = str("a weight of shape ", weight.shape());
  return weight.parameter() == nullptr ? shape : str(shape, " (", weight.parameter()->name(), ")");
}

}  // namespace zinc::autograd
