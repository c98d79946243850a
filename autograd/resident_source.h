// autograd/resident_source.h: the default home of parameters: values and gradients stay in the
// Parameter itself.
#pragma once

#include "autograd/parameter.h"

namespace zinc::autograd {

// Values are made at first use, on the current context's device. A gradient is added to
// Parameter::grad(); after zero_grad() it overwrites. The source itself has no state.
class ResidentSource final : public ParameterSource {
 public:
  ParameterGuard acquire(Parameter& parameter) override;
  GradientTarget gradient(Parameter& parameter) override;
  void gradient_done(Parameter&) override {}

 private:
  void release(Parameter&) noexcept override {}
};

ParameterSource& resident_source();

}  // namespace zinc::autograd
