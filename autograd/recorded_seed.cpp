#include "autograd/recorded_seed.h"

#include <array>

#include "core/context.h"
#include "core/transfer.h"

namespace zinc::autograd {

RecordedSeed::RecordedSeed()
    : both_(Tensor::empty({2}, DType::f32)),
      gradient_(both_.narrow_view(0, 0, 1).reshape_view(Shape{})) {}

void RecordedSeed::set(double seed) {
  if (seed_ == seed) return;
  const std::array<float, 2> values{static_cast<float>(seed), static_cast<float>(1.0 / seed)};
  upload(values.data(), both_.view(), Context::current().compute());
  seed_ = seed;
}

}  // namespace zinc::autograd
