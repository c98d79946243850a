#include "kernels/swiglu.h"

#include <cmath>

#include "kernels/cpu/row_walk.h"
#include "kernels/cpu/sigmoid.h"

namespace zinc::kernels::cpu {

void swiglu_forward_lanes(const SwiGluForward& args);
void swiglu_backward_lanes(const SwiGluBackward& args);

void swiglu_forward(const SwiGluForward& args) {
  if (args.gate.dtype() != DType::f64) return swiglu_forward_lanes(args);
  const double* gate = args.gate.data_as<double>();
  const double* up = args.up.data_as<double>();
  double* y = args.y.data_as<double>();
  parallel_elements(
      args.gate.shape(),
      [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const double z = gate[at[0] + i];
          y[at[2] + i] = z * sigmoid(z) * up[at[1] + i];
        }
      },
      args.gate, args.up, args.y);
}

void swiglu_backward(const SwiGluBackward& args) {
  if (args.gate.dtype() != DType::f64) return swiglu_backward_lanes(args);
  const double* dy = args.dy.data_as<double>();
  const double* gate = args.gate.data_as<double>();
  const double* up = args.up.data_as<double>();
  double* dgate = args.dgate.data_as<double>();
  double* dup = args.dup.data_as<double>();
  parallel_elements(
      args.gate.shape(),
      [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const double d = dy[at[0] + i];
          const double z = gate[at[1] + i];
          const double u = up[at[2] + i];
          dgate[at[3] + i] = d * u * (sigmoid(z) * (1.0 + z * sigmoid(-z)));
          dup[at[4] + i] = d * (z * sigmoid(z));
        }
      },
      args.dy, args.gate, args.up, args.dgate, args.dup);
}

}  // namespace zinc::kernels::cpu
