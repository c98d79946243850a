// The learning rate of one parameter from its sums of squares, by one thread: a few numbers beside
// the pass over the parameter that follows.
#include "kernels/norm_rate.h"

#include <bit>

#include "kernels/cuda/launch.h"

namespace zinc::kernels::cuda {
namespace {

struct Operands {
  const double* sums;
  bool has_two;
  double numel, least, most, lr, weight_decay;
  uint32_t counter[2];
  const uint32_t* given;  // may be null: the three before
  float* values;
};

__device__ __forceinline__ double f64_of(const uint32_t* halves) {
  return std::bit_cast<double>(uint64_t{halves[1]} << 32 | halves[0]);
}

__global__ void rate_kernel(Operands at) {
  if (at.given != nullptr) {
    at.lr = f64_of(at.given);
    at.weight_decay = f64_of(at.given + 2);
    at.counter[0] = at.given[4];
    at.counter[1] = at.given[5];
  }
  const double rate = norm_rate_of(at.sums, at.has_two, at.numel, at.least, at.most, at.lr,
                                   [](double x) { return sqrt(x); });
  at.values[0] = static_cast<float>(-rate);
  at.values[1] = static_cast<float>(-rate * at.weight_decay);
  auto* const words = reinterpret_cast<uint32_t*>(at.values + 2);
  words[0] = at.counter[0];
  words[1] = at.counter[1];
}

}  // namespace

void norm_rate(const NormRate& args, StreamRef stream) {
  require(args.values.dtype() == DType::f32, "norm_rate: values on a GPU are f32, not ",
          args.values.dtype());
  const Operands operands{
      .sums = args.sums.data_as<double>(),
      .has_two = args.sums.numel() == 2,
      .numel = static_cast<double>(args.numel),
      .least = args.least,
      .most = args.most,
      .lr = args.lr,
      .weight_decay = args.weight_decay,
      .counter = {static_cast<uint32_t>(args.counter_high),
                  static_cast<uint32_t>(args.counter_high >> 32)},
      .given =
          args.given ? reinterpret_cast<const uint32_t*>(args.given.data_as<float>()) : nullptr,
      .values = args.values.data_as<float>()};
  launch(rate_kernel, dim3(1), dim3(1), 0, stream, operands);
}

}  // namespace zinc::kernels::cuda
