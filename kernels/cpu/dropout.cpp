#include "kernels/dropout.h"

#include "core/parallel.h"
#include "kernels/cpu/dropout_threshold.h"

namespace zinc::kernels::cpu {

void dropout_lanes(const DropoutResidual& args);

// `residual` may be absent.
void dropout_residual(const DropoutResidual& args) {
  if (args.x.dtype() != DType::f64) return dropout_lanes(args);
  const double* x = args.x.data_as<double>();
  const double* residual = args.residual ? args.residual.data_as<double>() : nullptr;
  double* y = args.y.data_as<double>();
  const auto threshold = static_cast<float>(args.p);
  const auto factor = dropout_factor<double>(args.p);
  parallel_for(args.x.numel(), 1 << 12, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float uniform = args.key.uniform(static_cast<uint64_t>(args.first_element + i));
      const double value = args.p < 1.0 && uniform >= threshold ? x[i] * factor : 0.0;
      y[i] = residual == nullptr ? value : residual[i] + value;
    }
  });
}

}  // namespace zinc::kernels::cpu
