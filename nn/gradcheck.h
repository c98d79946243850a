// nn/gradcheck.h: compares a module's gradients with central differences, in f64: a check for new
// layers.
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
  double step = 1e-5;       // step of the differences, for values of order 1
  double tolerance = 1e-6;  // largest relative error
  int directions = 3;       // random ones, per parameter
};

// For one parameter: the direction along which backward and differences agree least.
struct GradcheckError {
  std::string parameter;
  double backward = 0.0;     // derivative along the direction, by backward()
  double differences = 0.0;  // (f(p + step d) - f(p - step d)) / 2 step
  double relative = 0.0;     // |backward - differences| over the larger one, or the gradient's size
};

struct GradcheckResult {
  std::vector<GradcheckError> wrong;  // beyond the tolerance, worst first
  double worst = 0.0;                 // relative error of all
  bool ok() const { return wrong.empty(); }
};
std::string to_string(const GradcheckResult& result);

// `f`: an f64 scalar that depends on the module's parameters. It must draw the same random numbers
// each time. Parameters without values become f64. At the end the values are as before, and
// gradients are gone. Errors that the rounding of f alone explains do not count. Needs a context.
// Throws InvalidArgument if f gives no f64 scalar, or a parameter has another dtype.
GradcheckResult gradcheck(Module& module, const std::function<Tensor()>& f,
                          const GradcheckOptions& options = {});

}  // namespace zinc::nn
