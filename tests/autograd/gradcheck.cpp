#include "tests/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <ostream>

#include "autograd/backward.h"
#include "autograd/parameter.h"
#include "tests/autograd/rank.h"

namespace zinc::testing {
namespace {

using autograd::Parameter;
using autograd::Weight;

using Values = std::vector<double>;

Values operand_values(const GradcheckOperand& operand, uint64_t seed) {
  Values values = random_values(operand.shape.numel(), seed, operand.low, operand.high);
  for (double& value : values) {
    if (operand.gap > 0 && std::abs(value) < operand.gap)
      value += value < 0 ? -operand.gap : operand.gap;
  }
  return values;
}

// Every evaluation draws the same random numbers.
std::vector<Tensor> evaluate(const GradcheckRow& row, std::span<const Weight> operands) {
  Context::current().random().set_position(0, 0);
  return row.function(operands);
}

Values weights_of(const Tensor& result, size_t index) {
  return random_values(result.numel(), 1000 + index, 0.5, 1.5);
}

double weighted_sum(const std::vector<Tensor>& results) {
  double sum = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    const Values values = results[i].to_vector<double>();
    const Values weights = weights_of(results[i], i);
    for (size_t k = 0; k < values.size(); ++k) sum += values[k] * weights[k];
  }
  return sum;
}

void run_backward(const std::vector<Tensor>& results) {
  std::vector<autograd::BackwardRoot> roots;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) continue;
    roots.push_back({results[i], Tensor::from(weights_of(results[i], i), results[i].shape(),
                                              results[i].dtype())});
  }
  autograd::backward(roots);
}

std::vector<Values> gradients_of_tensors(const GradcheckRow& row, const std::vector<Values>& at) {
  std::vector<Tensor> tensors;
  std::vector<Weight> operands;
  for (size_t i = 0; i < at.size(); ++i) {
    tensors.push_back(Tensor::from(at[i], row.operands[i].shape));
    autograd::requires_grad_(tensors.back());
    operands.emplace_back(tensors.back());
  }
  run_backward(evaluate(row, operands));
  std::vector<Values> gradients;
  for (const Tensor& tensor : tensors) {
    const Tensor gradient = autograd::grad(tensor);
    gradients.push_back(gradient.defined() ? gradient.to_vector<double>()
                                           : Values(static_cast<size_t>(tensor.numel())));
  }
  return gradients;
}

std::vector<Values> gradients_by_differences(const GradcheckRow& row, std::vector<Values> at) {
  std::vector<Values> gradients;
  auto value_at = [&] {
    std::vector<Weight> operands;
    for (size_t i = 0; i < at.size(); ++i) {
      operands.emplace_back(Tensor::from(at[i], row.operands[i].shape));
    }
    return weighted_sum(evaluate(row, operands));
  };
  for (Values& values : at) {
    Values& gradient = gradients.emplace_back();
    for (double& value : values) {
      const double middle = value;
      value = middle + row.step;
      const double above = value_at();
      value = middle - row.step;
      const double below = value_at();
      value = middle;
      gradient.push_back((above - below) / (2 * row.step));
    }
  }
  return gradients;
}

double norm(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// Weights as Parameters: `expected` bit by bit, then twice that when backward comes again.
void check_parameters(const GradcheckRow& row, const std::vector<Values>& at,
                      const std::vector<Values>& expected) {
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Tensor> tensors;
  std::vector<Weight> operands;
  bool any = false;
  for (size_t i = 0; i < at.size(); ++i) {
    const GradcheckOperand& operand = row.operands[i];
    tensors.push_back(Tensor::from(at[i], operand.shape));
    parameters.push_back(nullptr);
    if (!operand.is_weight) {
      operands.emplace_back(tensors.back());
      continue;
    }
    any = true;
    parameters.back() = std::make_unique<Parameter>(str("operand.", i), operand.shape,
                                                    autograd::Initializer::zeros(), DType::f64);
    parameters.back()->data().copy_from(tensors.back());
    operands.emplace_back(*parameters.back());
  }
  if (!any) return;
  for (int pass = 1; pass <= 2; ++pass) {
    run_backward(evaluate(row, operands));
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i] == nullptr) continue;
      ASSERT_TRUE(parameters[i]->grad().has_value()) << "parameter " << i;
      const Values gradient = parameters[i]->grad()->to_vector<double>();
      for (size_t k = 0; k < gradient.size(); ++k) {
        // g + g is exact, but a kernel may add its partial sums to the old value one by one.
        const double wanted = pass * expected[i][k];
        if (pass == 1) {
          ASSERT_EQ(gradient[k], wanted) << "parameter " << i << ", element " << k;
        } else {
          ASSERT_NEAR(gradient[k], wanted, 1e-13 * (std::abs(wanted) + norm(expected[i])))
              << "accumulated parameter " << i << ", element " << k;
        }
      }
    }
  }
}

}  // namespace

void PrintTo(const GradcheckRow& row, std::ostream* out) { *out << row.header << ": " << row.name; }

void check_gradients(const GradcheckRow& row) {
  const Rank rank({.memory = {.poison = true}});  // shows what reads memory that nobody wrote
  std::vector<Values> at;
  for (size_t i = 0; i < row.operands.size(); ++i) at.push_back(operand_values(row.operands[i], i));
  const std::vector<Values> analytic = gradients_of_tensors(row, at);
  const std::vector<Values> numeric = gradients_by_differences(row, at);
  for (size_t i = 0; i < at.size(); ++i) {
    ASSERT_EQ(analytic[i].size(), numeric[i].size());
    const double error = distance(analytic[i], numeric[i]);
    EXPECT_LE(error, kGradcheckTolerance * norm(numeric[i]))
        << "operand " << i << ": |analytic - numeric| = " << error
        << ", |numeric| = " << norm(numeric[i]);
    EXPECT_GT(norm(numeric[i]), 0) << "operand " << i << " does not matter: a useless row";
  }
  check_parameters(row, at, analytic);
}

}  // namespace zinc::testing
