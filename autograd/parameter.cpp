#include "autograd/parameter.h"

#include <algorithm>
#include <utility>

#include "autograd/resident_source.h"
#include "core/context.h"
#include "core/transfer.h"
#include "kernels/copy.h"

namespace zinc::autograd {

void ParameterGuard::reset() noexcept {
  if (source_ != nullptr) source_->release(*parameter_);
  source_ = nullptr;
  parameter_ = nullptr;
  view_ = {};
}

Parameter::Parameter(std::string name, const Shape& shape, const Initializer& initializer,
                     DType dtype)
    : name_(std::move(name)),
      shape_(shape),
      initializer_(initializer),
      dtype_(dtype),
      decays_(shape.rank() >= 2),
      source_(&resident_source()) {
  require(is_float(dtype), "parameter '", name_, "': the dtype must be a float, not ", dtype);
}

Parameter::~Parameter() = default;

void Parameter::require_no_values(std::string_view change) const {
  require(!data_.has_value() && source_ == &resident_source(), "parameter '", name_, "': its ",
          change, " cannot change once it has values; do it before the first use");
}

void Parameter::set_dtype(DType dtype) {
  require_no_values("dtype");
  require(is_float(dtype), "parameter '", name_, "': the dtype must be a float, not ", dtype);
  dtype_ = dtype;
}

void Parameter::set_requires_grad(bool value) {
  require_no_values("requires_grad");
  requires_grad_ = value;
}

void Parameter::set_block_format(std::optional<BlockFormat> format) {
  require_no_values("block format");
  block_format_ = format;
}

void Parameter::set_slice(std::optional<TensorSlice> slice) {
  if (slice_.has_value() == slice.has_value() && (!slice || *slice_ == *slice)) return;
  require_no_values("slice");
  require(!slice || slice->whole == whole_shape(), "parameter '", name_, "': a slice of ",
          slice ? slice->whole : Shape(), " for the shape ", whole_shape());
  shape_ = slice ? slice->shape() : whole_shape();
  slice_ = std::move(slice);
}

void Parameter::set_initializer(const Initializer& initializer) {
  require_no_values("initializer");
  initializer_ = initializer;
}

void Parameter::set_source(ParameterSource& source, ParameterIndex index) {
  index_ = index;
  if (source_ == &source) return;
  drop_data();
  source_ = &source;
}

void Parameter::drop_data() {
  data_.reset();
  grad_.reset();
  loss_of_data_.clear();
}

void Parameter::adopt_data(Tensor values) {
  require(source_ == &resident_source(), "parameter '", name_,
          "': its values are kept by another source");
  require(values.shape() == shape_ && values.dtype() == dtype_ && values.is_contiguous(),
          "parameter '", name_, "': takes contiguous ", dtype_, shape_, ", not ", values.dtype(),
          values.shape());
  drop_data();
  data_ = std::move(values);
}

void Parameter::join_data(std::span<Parameter* const> parameters) {
  constexpr int64_t kAlignment = 64;  // bytes
  int64_t numel = 0;
  bool lie_so = true;
  const void* end = nullptr;
  for (Parameter* parameter : parameters) {
    if (parameter->source_ != &resident_source()) return;
    const ConstView view = parameter->data().view();
    if (view.dtype() != parameters.front()->dtype() || view.bytes() % kAlignment != 0) return;
    lie_so = lie_so && (end == nullptr || end == view.data());
    end = static_cast<const std::byte*>(view.data()) + view.bytes();
    numel += view.numel();
  }
  const auto is_shared = [](Parameter* parameter) { return !parameter->data_->is_sole_owner(); };
  if (lie_so || std::ranges::any_of(parameters, is_shared)) return;
  const Tensor all = Tensor::empty(Shape{numel}, parameters.front()->dtype(), Label::parameters);
  int64_t first = 0;
  for (Parameter* parameter : parameters) {
    Tensor place = all.narrow_view(0, first, parameter->numel()).reshape_view(parameter->shape_);
    kernels::copy({.x = parameter->data_->view(), .y = place.view()}, Context::current().compute());
    parameter->data_ = std::move(place);
    first += parameter->numel();
  }
}

void Parameter::lose_data(std::string why) {
  drop_data();
  loss_of_data_ = std::move(why);
}

Tensor& Parameter::overwrite_data() {
  loss_of_data_.clear();
  return data();
}

void Parameter::reset_source() { set_source(resident_source()); }

void Parameter::zero_grad() { grad_.reset(); }

Tensor& Parameter::data() {
  require(source_ == &resident_source(), "parameter '", name_,
          "': its values are kept by another source; acquire() them there (of an engine: "
          "engine.parameter() reads them, engine.edit() changes them)");
  if (data_.has_value()) return *data_;
  require(loss_of_data_.empty(), "parameter '", name_, "': its values are gone: ", loss_of_data_);
  Tensor tensor = Tensor::empty(shape_, dtype_, Label::parameters);
  if (!tensor.device().meta) {
    const View flat = tensor.view().reshape(Shape{numel()});
    Context& context = Context::current();
    if (tensor.device().is_cuda()) {
      std::vector<std::byte> values(static_cast<size_t>(flat.bytes()));
      initialize_range(*this, context.random().seed(), 0,
                       View(values.data(), dtype_, flat.shape(), kCpu));
      upload(values.data(), flat, context.compute());
      data_ = std::move(tensor);
      return *data_;
    }
    context.compute().submit(
        "initialize", [initializer = initializer_, seed = context.random().seed(), name = name_,
                       slice = slice_, flat] {
          read_slice(slice, 0, flat, [&](int64_t begin, const View& out) {
            initialize_range(initializer, seed, name, begin, out);
          });
        });
  }
  data_ = std::move(tensor);
  return *data_;
}

void initialize_range(const Parameter& parameter, uint64_t seed, int64_t begin, View out) {
  read_slice(parameter.slice(), begin, out, [&](int64_t at, const View& part) {
    initialize_range(parameter.initializer(), seed, parameter.name(), at, part);
  });
}

ParameterGuard ResidentSource::acquire(Parameter& parameter) {
  return ParameterGuard(*this, parameter, parameter.data().view());
}

GradientTarget ResidentSource::gradient(Parameter& parameter) {
  const bool accumulate = parameter.grad_.has_value();
  if (!accumulate) {
    parameter.grad_ = Tensor::empty(parameter.shape(), parameter.dtype(), Label::gradients);
  }
  return {.view = parameter.grad_->view(), .accumulate = accumulate};
}

ParameterSource& resident_source() {
  static ResidentSource source;
  return source;
}

}  // namespace zinc::autograd
