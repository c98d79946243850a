// nn/gradcheck.h: a module's gradients against central differences, in f64: a check for layers that
// one writes.
//
//   MyLayer layer(...);                                 // without values yet: they become f64
//   const auto x = zinc::Tensor::from(values, {2, 3, 8}, zinc::DType::f64);
//   const auto check = zinc::nn::gradcheck(layer, [&] { return zinc::sum(layer.forward(x)); });
//   if (!check.ok()) std::puts(to_string(check).c_str());
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "tensor/tensor.h"

namespace zinc::nn {

struct GradcheckOptions {
  double step = 1e-5;       // of the differences; values of order 1 are meant
  double tolerance = 1e-6;  // largest relative error
  int directions = 3;       // random ones, per parameter
};

// Of one parameter along the direction in which backward and differences agree least.
struct GradcheckError {
  std::string parameter;
  double backward = 0.0;     // derivative along the direction, by backward()
  double differences = 0.0;  // by (f(p + step d) - f(p - step d)) / 2 step
  double relative = 0.0;     // |backward - differences| over the larger one, or the gradient's size
};

struct GradcheckResult {
  std::vector<GradcheckError> wrong;  // beyond the tolerance, worst first
  double worst = 0.0;                 // relative error of all
  bool ok() const { return wrong.empty(); }
};
std::string to_string(const GradcheckResult& result);

// `f`: a scalar, f64, that depends on the module's parameters; it draws the same random numbers
// each time. Parameters that have no values yet become f64. Needs a context; values are as before
// at the end, gradients are gone. What the rounding of f alone makes of differences is no error.
// Throws InvalidArgument for a result that is no f64 scalar, and for parameters of another dtype.
GradcheckResult gradcheck(Module& module, const std::function<Tensor()>& f,
                          const GradcheckOptions& options = {});

}  // namespace zinc::nn
