// tests/autograd/rank.h: a context that is current for a scope, and small makers of values.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/context.h"
#include "core/philox.h"
#include "tensor/tensor.h"

namespace zinc::testing {

struct Rank {
  explicit Rank(ContextOptions options = {}) : context(std::move(options)), scope(context) {}
  int64_t live(Label label) const {
    return const_cast<Context&>(context).allocator().report().at(Tier::device, label).live;
  }
  int64_t live() const {
    return const_cast<Context&>(context).allocator().report().at(Tier::device).live;
  }
  Context context;
  ContextScope scope;
};

inline ContextOptions shuffled(uint64_t seed) {
  return {.execution = ContextOptions::Execution::shuffled, .shuffle_seed = seed};
}

// n values uniform in [low, high), the same for the same seed.
inline std::vector<double> random_values(int64_t n, uint64_t seed, double low = -1.0,
                                         double high = 1.0) {
  const RandomKey key = make_random_key(seed, Purpose::test, 0, 0, 0);
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = low + (high - low) * static_cast<double>(key.uniform(i));
  }
  return values;
}

inline Tensor random_tensor(const Shape& shape, uint64_t seed, DType dtype = DType::f32,
                            double low = -1.0, double high = 1.0) {
  return Tensor::from(random_values(shape.numel(), seed, low, high), shape, dtype);
}

inline Tensor ids_tensor(const std::vector<int64_t>& values, const Shape& shape,
                         DType dtype = DType::i32) {
  return Tensor::from(values, shape, dtype);
}

}  // namespace zinc::testing
