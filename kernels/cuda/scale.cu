// y = x * (factor * device_factor), or x * (factor / norm): a map (elementwise.h); 2 arrays of
// traffic.
#include "kernels/scale.h"

#include "kernels/cuda/elementwise.h"

namespace zinc::kernels::cuda {
namespace {

struct Times {
  using Element = float;
  static constexpr bool kHot = true;
  static constexpr bool kPromisesBits = true;
  float factor;
  const float* device_factor;
  double factor_in_f64;
  const double* sum_of_squares;
  double least_norm;
  __device__ __forceinline__ void begin() {
    if (device_factor != nullptr) factor *= *device_factor;
    if (sum_of_squares != nullptr) {
      factor = static_cast<float>(over_norm(factor_in_f64, *sum_of_squares, least_norm));
    }
  }
  __device__ __forceinline__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0] * factor;
  }
};

}  // namespace

void scale(const Scale& args, StreamRef stream) {
  dispatch_device_float("scale", args.x.dtype(), [&]<class T>() {
    const Times times{
        .factor = static_cast<float>(args.factor),
        .device_factor = args.device_factor ? args.device_factor.data_as<float>() : nullptr,
        .factor_in_f64 = args.factor,
        .sum_of_squares = args.sum_of_squares ? args.sum_of_squares.data_as<double>() : nullptr,
        .least_norm = args.least_norm};
    launch_map<T, T>(times, std::array<View, 1>{args.y}, std::array<ConstView, 1>{args.x}, stream);
  });
}

}  // namespace zinc::kernels::cuda
