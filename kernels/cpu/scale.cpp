#include "kernels/scale.h"

#include "kernels/cpu/row_walk.h"

namespace zinc::kernels::cpu {

void scale_lanes(const Scale& args, float factor);

void scale(const Scale& args) {
  const float device_factor = args.device_factor ? *args.device_factor.data_as<float>() : 1.0f;
  double factor = args.factor * double{device_factor};
  if (args.sum_of_squares) {
    factor = over_norm(args.factor, *args.sum_of_squares.data_as<double>(), args.least_norm);
  }
  if (args.x.dtype() != DType::f64) {
    return scale_lanes(args, args.sum_of_squares ? static_cast<float>(factor)
                                                 : static_cast<float>(args.factor) * device_factor);
  }
  const double* x = args.x.data_as<double>();
  double* y = args.y.data_as<double>();
  parallel_elements(
      args.x.shape(),
      [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) y[at[1] + i] = x[at[0] + i] * factor;
      },
      args.x, args.y);
}

}  // namespace zinc::kernels::cpu
