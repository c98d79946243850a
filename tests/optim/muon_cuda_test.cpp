// Muon's iteration on a GPU against that in f64 on the CPU, which muon_test.cpp compares with its
// formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/context.h"
#include "core/error.h"
#include "core/philox.h"
#include "optim/muon.h"
#include "tensor/tensor.h"

namespace zinc::optim {
namespace muon_cuda_test {

using Values = std::vector<double>;

Values step_of(const MuonOptions& options, const Values& direction, const Shape& shape,
               DType dtype) {
  const Tensor matrix = Tensor::from(direction, shape, dtype);
  Muon(options).transform({.direction = matrix.view()}, {}, Context::current().compute());
  return matrix.to_vector<double>();
}

TEST(MuonCuda, Transform_IsThatOfTheCpu) {
  const RandomKey key = make_random_key(3, Purpose::test, 0, 0, 0);
  struct Case {
    Shape shape;
    int steps;
  };
  for (const auto& [shape, steps] : {Case{{24, 40}, 5}, Case{{33, 18}, 4}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const MuonOptions options{.steps = steps, .scale = MuonScale::match_rms};
      Values direction(static_cast<size_t>(shape.numel()));
      for (size_t i = 0; i < direction.size(); ++i) {
        // Exact in bf16.
        direction[i] = std::round(static_cast<double>(key.uniform(i)) * 255.0) - 127.0;
      }
      Values expected;
      {
        Context cpu({.num_threads = 1});
        const ContextScope scope(cpu);
        expected = step_of(options, direction, shape, DType::f64);
      }
      Context gpu({.device = {.kind = DeviceKind::cuda}, .memory = {.poison = true}});
      const ContextScope scope(gpu);
      const Values actual = step_of(options, direction, shape, dtype);
      double apart = 0.0, size = 0.0;
      for (size_t i = 0; i < expected.size(); ++i) {
        apart += std::pow(actual[i] - expected[i], 2);
        size += std::pow(expected[i], 2);
      }
      // As in muon_test.cpp: 32 roundings.
      EXPECT_LE(std::sqrt(apart / size), 32 * (dtype == DType::f32 ? 0x1p-24 : 0x1p-9))
          << str(shape, " ", dtype, " ", steps);
      EXPECT_EQ(step_of(options, direction, shape, dtype), actual) << "another run";
      for (const double value : step_of(options, Values(direction.size()), shape, dtype)) {
        ASSERT_EQ(value, 0.0);
      }
    }
  }
}

}  // namespace muon_cuda_test
}  // namespace zinc::optim
