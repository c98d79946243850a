#include "nn/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "core/context.h"
#include "core/error.h"
#include "core/philox.h"

namespace zinc::nn {
namespace {

using Values = std::vector<double>;

double dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The same random numbers at every call.
Tensor evaluate(const std::function<Tensor()>& f) {
  RandomState& random = Context::current().random();
  random.set_position(random.step(), random.micro_batch());
  const Tensor result = f();
  require(result.defined() && result.rank() == 0 && result.dtype() == DType::f64,
          "gradcheck: the function must give an f64 scalar, not ",
          result.defined() ? str(result.dtype(), " ", result.shape()) : "nothing");
  return result;
}

// A random direction of length 1.
Values random_direction(const Parameter& parameter, int number) {
  const RandomKey key = make_random_key(static_cast<uint64_t>(number), Purpose::test, 0, 0,
                                        hash_text(parameter.name()));
  Values direction(static_cast<size_t>(parameter.numel()));
  for (size_t i = 0; i < direction.size(); ++i) direction[i] = 2.0 * key.uniform(i) - 1.0;
  const double length = std::sqrt(dot(direction, direction));
  for (double& element : direction) element /= length;
  return direction;
}

class Check {
 public:
  Check(Parameter& parameter, const std::function<Tensor()>& f, const GradcheckOptions& options)
      : parameter_(parameter), f_(f), options_(options) {
    at_ = parameter.data().to_vector<double>();
    gradient_ = parameter.grad() ? parameter.grad()->to_vector<double>() : Values(at_.size());
  }

  GradcheckError along(const Values& direction) {
    const double above = value_at(direction, options_.step);
    const double below = value_at(direction, -options_.step);
    GradcheckError error{.parameter = parameter_.name(),
                         .backward = dot(gradient_, direction),
                         .differences = (above - below) / (2.0 * options_.step)};
    // A direction may be nearly orthogonal to the gradient: then the gradient's length decides
    // which derivatives are small.
    const double typical =
        std::sqrt(dot(gradient_, gradient_) / static_cast<double>(gradient_.size()));
    const double size = std::max({std::abs(error.backward), std::abs(error.differences), typical});
    const double difference = std::abs(error.backward - error.differences);
    // The rounding of f, whose sums may cancel: a gradient of zero is found with an error of this
    // size.
    const double rounding = 30.0 * std::numeric_limits<double>::epsilon() *
                            std::max({std::abs(above), std::abs(below), 1e-3}) / options_.step;
    error.relative = difference <= rounding || size == 0.0 ? 0.0 : difference / size;
    if (!std::isfinite(difference)) error.relative = std::numeric_limits<double>::infinity();
    return error;
  }

 private:
  double value_at(const Values& direction, double step) {
    Values moved = at_;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
    set(moved);
    const autograd::NoGrad no_grad;
    try {
      const double value = evaluate(f_).item();
      set(at_);
      return value;
    } catch (...) {
      set(at_);
      throw;
    }
  }
  void set(const Values& values) {
    parameter_.data().copy_from(Tensor::from(values, parameter_.shape(), DType::f64));
  }

  Parameter& parameter_;
  const std::function<Tensor()>& f_;
  const GradcheckOptions& options_;
  Values at_, gradient_;
};

}  // namespace

GradcheckResult gradcheck(Module& module, const std::function<Tensor()>& f,
                          const GradcheckOptions& options) {
  require(options.step > 0.0 && options.directions > 0, "gradcheck: step ", options.step, " and ",
          options.directions, " directions must be positive");
  std::vector<Parameter*> trained;
  for (Parameter* parameter : module.parameters()) {
    if (!parameter->has_data()) parameter->set_dtype(DType::f64);
    require(parameter->dtype() == DType::f64, "gradcheck: parameter '", parameter->name(),
            "' has values in ", parameter->dtype(), "; call module.set_dtype(DType::f64) first");
    if (parameter->requires_grad()) trained.push_back(parameter);
  }
  require(!trained.empty(), "gradcheck: the module has no trainable parameter");
  module.zero_grad();
  autograd::backward(evaluate(f));
  GradcheckResult result;
  for (Parameter* parameter : trained) {
    Check check(*parameter, f, options);
    GradcheckError worst;
    for (int number = 0; number < options.directions; ++number) {
      const GradcheckError error = check.along(random_direction(*parameter, number));
      if (error.relative >= worst.relative) worst = error;
    }
    result.worst = std::max(result.worst, worst.relative);
    if (worst.relative > options.tolerance) result.wrong.push_back(worst);
  }
  std::stable_sort(
      result.wrong.begin(), result.wrong.end(),
      [](const GradcheckError& a, const GradcheckError& b) { return a.relative > b.relative; });
  module.zero_grad();
  return result;
}

std::string to_string(const GradcheckResult& result) {
  if (result.ok()) return str("gradients agree: largest relative error ", result.worst);
  std::string text = "gradients are wrong:";
  for (const GradcheckError& error : result.wrong) {
    text += str("\n  ", error.parameter, ": ", error.backward, " by backward, ", error.differences,
                " by differences (relative error ", error.relative, ")");
  }
  return text;
}

}  // namespace zinc::nn
