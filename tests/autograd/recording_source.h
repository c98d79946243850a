// tests/autograd/recording_source.h: a parameter source that writes down what it is asked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/parameter.h"
#include "tensor/tensor.h"

namespace zinc::testing {

// Values come from the parameter's initialiser with seed 0; gradients are kept by name and
// overwritten in every pass.
class RecordingSource final : public autograd::ParameterSource {
 public:
  autograd::ParameterGuard acquire(autograd::Parameter& parameter) override {
    events.push_back("acquire " + parameter.name());
    ++num_guards;
    return autograd::ParameterGuard(*this, parameter, values_of(parameter).view());
  }
  autograd::GradientTarget gradient(autograd::Parameter& parameter) override {
    const bool accumulate = !contributed_.insert({parameter.name(), true}).second;
    events.push_back("gradient " + parameter.name() + (accumulate ? " accumulate" : ""));
    Tensor& gradient = gradients[parameter.name()];
    if (!gradient.defined()) {
      gradient = Tensor::empty(parameter.shape(), parameter.dtype(), Label::gradients);
    }
    return {.view = gradient.view(), .accumulate = accumulate};
  }
  void gradient_done(autograd::Parameter& parameter) override {
    events.push_back("done " + parameter.name());
  }
  void backward_begin() override {
    events.push_back("begin");
    contributed_.clear();
  }
  void backward_end() override { events.push_back("end"); }

  std::vector<std::string> done() const {
    std::vector<std::string> names;
    for (const std::string& event : events) {
      if (event.starts_with("done ")) names.push_back(event.substr(5));
    }
    return names;
  }

  std::vector<std::string> events;
  std::map<std::string, Tensor> gradients;
  int num_guards = 0;

 private:
  void release(autograd::Parameter& parameter) noexcept override {
    events.push_back("release " + parameter.name());
    --num_guards;
  }
  Tensor& values_of(const autograd::Parameter& parameter) {
    Tensor& tensor = values_[parameter.name()];
    if (!tensor.defined()) {
      std::vector<double> values(static_cast<size_t>(parameter.numel()));
      autograd::initialize_range(parameter.initializer(), 0, parameter.name(), 0,
                                 View(values.data(), DType::f64, Shape{parameter.numel()}));
      tensor = Tensor::from(values, parameter.shape(), parameter.dtype());
    }
    return tensor;
  }

  std::map<std::string, Tensor> values_;
  std::map<std::string, bool> contributed_;
};

}  // namespace zinc::testing
